//! What a node says of itself to a peer that asks: who it is, how far it is, and whether it knows a cluster.
//! Asked before a cluster is begun, and all the time for the cluster's status.

use bytes::Bytes;

use super::{DecodeError, end, get_bool, get_data, get_slice, get_text, get_u64, payload};
use crate::membership::DataId;

/// What a node says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeStatus {
    /// The node.
    pub node: u64,
    /// Its data directory: a cluster begins with the directories that its members have then.
    pub data: DataId,
    /// Whether it has a vote or a log: then it belongs to a cluster, and no other may be begun with it.
    pub initialized: bool,
    /// The cluster's id as applied here; zero before the cluster's life began.
    pub cluster_id: [u8; 16],
    /// Its term.
    pub term: u64,
    /// The leader it knows, if any.
    pub leader: Option<u64>,
    /// The last index it has applied; 0 where there is none.
    pub applied: u64,
    /// The last index in its log; 0 where there is none.
    pub last_log: u64,
    /// The newest index whose state hash it keeps, and the hash.
    pub hash: Option<(u64, [u8; 32])>,
    /// Its region.
    pub region: String,
    /// Base URL of its client listener.
    pub client_url: String,
}

impl NodeStatus {
    /// The payload of the reply. Texts above the protocol's limit are left out.
    pub fn to_payload(&self) -> Bytes {
        payload(|out| {
            out.u64(self.node);
            out.slice(&self.data.0);
            out.u8(u8::from(self.initialized));
            out.slice(&self.cluster_id);
            out.u64(self.term);
            out.u8(u8::from(self.leader.is_some()));
            out.u64(self.leader.unwrap_or_default());
            out.u64(self.applied);
            out.u64(self.last_log);
            out.u8(u8::from(self.hash.is_some()));
            let (index, hash) = self.hash.unwrap_or_default();
            out.u64(index);
            out.slice(&hash);
            for text in [&self.region, &self.client_url] {
                out.text(if text.len() <= super::MAX_TEXT_LEN { text } else { "" });
            }
        })
    }

    /// Reads the payload of the reply.
    ///
    /// # Errors
    /// The bytes are not a status.
    pub fn from_payload(mut body: Bytes) -> Result<Self, DecodeError> {
        let node = get_u64(&mut body, "node")?;
        let data = get_data(&mut body)?;
        let initialized = get_bool(&mut body, "initialized")?;
        let cluster_id = array(&mut body, "cluster id")?;
        let term = get_u64(&mut body, "term")?;
        let has_leader = get_bool(&mut body, "leader")?;
        let leader = Some(get_u64(&mut body, "leader")?).filter(|_| has_leader);
        let applied = get_u64(&mut body, "applied")?;
        let last_log = get_u64(&mut body, "last log")?;
        let has_hash = get_bool(&mut body, "hash")?;
        let hash = Some((get_u64(&mut body, "hash index")?, array(&mut body, "hash")?)).filter(|_| has_hash);
        let (region, client_url) = (get_text(&mut body, "region")?, get_text(&mut body, "client url")?);
        end(&body)?;
        Ok(Self { node, data, initialized, cluster_id, term, leader, applied, last_log, hash, region, client_url })
    }
}

fn array<const N: usize>(body: &mut Bytes, what: &'static str) -> Result<[u8; N], DecodeError> {
    let mut array = [0; N];
    array.copy_from_slice(&get_slice(body, N, what)?);
    Ok(array)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_comes_back_as_it_was_and_no_cut_of_it_does() {
        let status = NodeStatus {
            node: 3,
            data: DataId([4; 16]),
            initialized: true,
            cluster_id: [5; 16],
            term: 7,
            leader: Some(2),
            applied: 1_023,
            last_log: 1_025,
            hash: Some((1_024, [9; 32])),
            region: "eu-west".to_owned(),
            client_url: "http://127.0.0.1:7101".to_owned(),
        };
        let bytes = status.to_payload();
        assert_eq!(NodeStatus::from_payload(bytes.clone()), Ok(status));
        for len in 0..bytes.len() {
            assert!(NodeStatus::from_payload(bytes.slice(..len)).is_err(), "cut at {len}");
        }
        let nothing = NodeStatus::default();
        assert_eq!(NodeStatus::from_payload(nothing.to_payload()), Ok(nothing));
    }
}
