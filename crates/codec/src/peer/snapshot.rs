//! A snapshot transfer: one per connection, the files of a directory in order, in checked pieces.
//! The receiver says at intervals that it works, and at the end how it went.

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::raft::{LogId, Membership, Vote, get_option_log_id, get_vote, put_option_log_id, put_vote};
use super::{
    DecodeError, Frame, FrameWriter, Kind, MAX_CHUNK_LEN, MAX_FILE_NAME_LEN, MAX_SNAPSHOT_FILES, end, get_count,
    get_text, get_u32, get_u64,
};

/// What a snapshot is of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Meta {
    /// The last log entry that the snapshot contains.
    pub last_log_id: Option<LogId>,
    /// The log entry that set the membership.
    pub membership_log_id: Option<LogId>,
    /// The membership at the snapshot.
    pub membership: Membership,
}

/// One file of the snapshot's directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct File {
    /// A plain name, see [`is_plain_name`].
    pub name: String,
    /// Length in bytes.
    pub len: u64,
}

/// Whether a name stays inside the directory that it is put in: letters, digits, `.`, `-` and `_`
/// only, and not beginning with a dot.
pub fn is_plain_name(name: &str) -> bool {
    let fits = !name.is_empty() && name.len() <= MAX_FILE_NAME_LEN && !name.starts_with('.');
    fits && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
}

/// Opens a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begin {
    /// The sending leader's vote.
    pub vote: Vote,
    /// What the snapshot is of.
    pub meta: Meta,
    /// The files, in the order in which they follow.
    pub files: Vec<File>,
}

impl Begin {
    /// The frame.
    pub fn encode(&self) -> Frame {
        let mut out = FrameWriter::new(Kind::SnapshotBegin);
        put_vote(&mut out, &self.vote);
        put_option_log_id(&mut out, self.meta.last_log_id);
        put_option_log_id(&mut out, self.meta.membership_log_id);
        self.meta.membership.put(&mut out);
        out.u32(self.files.len() as u32);
        for file in &self.files {
            out.text(&file.name);
            out.u64(file.len);
        }
        out.finish()
    }

    /// Reads what follows the kind. Refuses names that would leave the directory, and names twice.
    pub fn decode(mut body: Bytes) -> Result<Self, DecodeError> {
        let vote = get_vote(&mut body)?;
        let meta = Meta {
            last_log_id: get_option_log_id(&mut body)?,
            membership_log_id: get_option_log_id(&mut body)?,
            membership: Membership::get(&mut body)?,
        };
        let count = get_count(&mut body, MAX_SNAPSHOT_FILES, 10, "files")?;
        let mut files = Vec::with_capacity(count);
        let mut names = std::collections::BTreeSet::new();
        for _ in 0..count {
            let name = get_text(&mut body, "file name")?;
            if !is_plain_name(&name) {
                return Err(DecodeError::Invalid("file name"));
            }
            if !names.insert(name.clone()) {
                return Err(DecodeError::Invalid("repeated file name"));
            }
            files.push(File { name, len: get_u64(&mut body, "file length")? });
        }
        end(&body)?;
        Ok(Self { vote, meta, files })
    }
}

/// A piece of a file. The checksum covers its place too, so that a piece that was moved is noticed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Position of the file in [`Begin::files`].
    pub file: u32,
    /// Where in the file the piece begins, in bytes.
    pub offset: u64,
    /// The piece.
    pub data: Bytes,
}

impl Chunk {
    fn checksum(&self) -> u64 {
        xxh3_64_with_seed(&self.data, self.offset ^ u64::from(self.file).rotate_left(40))
    }

    /// The frame.
    pub fn encode(&self) -> Frame {
        let mut out = FrameWriter::new(Kind::SnapshotChunk);
        out.u32(self.file);
        out.u64(self.offset);
        out.u64(self.checksum());
        out.shared(&self.data);
        out.finish()
    }

    /// Reads what follows the kind and checks the piece against its checksum.
    pub fn decode(mut body: Bytes) -> Result<Self, DecodeError> {
        let file = get_u32(&mut body, "chunk file")?;
        let offset = get_u64(&mut body, "chunk offset")?;
        let checksum = get_u64(&mut body, "chunk checksum")?;
        if body.len() > MAX_CHUNK_LEN {
            return Err(DecodeError::TooLong { what: "chunk", len: body.len() as u64 });
        }
        let chunk = Self { file, offset, data: body };
        if chunk.checksum() != checksum {
            return Err(DecodeError::Invalid("chunk checksum"));
        }
        Ok(chunk)
    }
}

/// Ends a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileEnd {
    /// Position of the file in [`Begin::files`].
    pub file: u32,
    /// XXH3 of the whole file as the sender read it.
    pub checksum: u64,
}

impl FileEnd {
    /// The frame.
    pub fn encode(&self) -> Frame {
        let mut out = FrameWriter::new(Kind::SnapshotFileEnd);
        out.u32(self.file);
        out.u64(self.checksum);
        out.finish()
    }

    /// Reads what follows the kind.
    pub fn decode(mut body: Bytes) -> Result<Self, DecodeError> {
        let this = Self { file: get_u32(&mut body, "file")?, checksum: get_u64(&mut body, "file checksum")? };
        end(&body)?;
        Ok(this)
    }
}

/// The snapshot was installed, or refused for a newer vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// The receiver's vote after the installation.
    pub vote: Vote,
}

impl Done {
    /// The frame.
    pub fn encode(&self) -> Frame {
        let mut out = FrameWriter::new(Kind::SnapshotDone);
        put_vote(&mut out, &self.vote);
        out.finish()
    }

    /// Reads what follows the kind.
    pub fn decode(mut body: Bytes) -> Result<Self, DecodeError> {
        let vote = get_vote(&mut body)?;
        end(&body)?;
        Ok(Self { vote })
    }
}

/// The receiver gave up; what it had received is thrown away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// For the sender's log.
    pub reason: String,
}

impl Failed {
    /// The frame.
    pub fn encode(&self) -> Frame {
        let mut out = FrameWriter::new(Kind::SnapshotFailed);
        out.text(&self.reason);
        out.finish()
    }

    /// Reads what follows the kind.
    pub fn decode(mut body: Bytes) -> Result<Self, DecodeError> {
        let reason = get_text(&mut body, "reason")?;
        end(&body)?;
        Ok(Self { reason })
    }
}
