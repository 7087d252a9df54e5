//! Tokens: minting, parsing, hashing, and verifying without telling by time which part was wrong.
//! The plain token `dev` has a record only where somebody asked for one explicitly.

use std::fmt;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

use crate::principal::Principal;
use crate::role::Roles;

/// What every token starts with, so that scanners for leaked secrets find it.
const PREFIX: &str = "hpx_";
/// Random bytes in an id.
const ID_BYTES: usize = 10;
/// Random bytes in a secret.
const SECRET_BYTES: usize = 32;
/// The whole of the token of `hapax dev`, and its id.
const DEV: &str = "dev";

/// A token, secret included: what its owner keeps. `Debug` shows the id only.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    id: String,
    secret: String,
}

impl Token {
    /// Makes a token from random bytes, which must come from a generator fit for keys.
    #[must_use]
    pub fn mint(id: [u8; ID_BYTES], secret: [u8; SECRET_BYTES]) -> Token {
        Token { id: hex(&id), secret: hex(&secret) }
    }

    /// Reads `hpx_<id>_<secret>`: 20 and 64 lower-case hexadecimal digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Token> {
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        let well_formed = is_hex(id, 2 * ID_BYTES) && is_hex(secret, 2 * SECRET_BYTES);
        well_formed.then(|| Token { id: id.to_owned(), secret: secret.to_owned() })
    }

    /// The token as it is presented. Whoever has it is the client.
    #[must_use]
    pub fn to_text(&self) -> String {
        format!("{PREFIX}{}_{}", self.id, self.secret)
    }

    /// The public part, which finds the record.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// SHA-256 of the secret's 64 digits: `printf %s SECRET | sha256sum` computes the same.
    #[must_use]
    pub fn secret_hash(&self) -> [u8; 32] {
        Sha256::digest(&self.secret).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({PREFIX}{}_…)", self.id)
    }
}

/// What is kept of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRecord {
    /// The public part.
    pub id: String,
    /// The hash of the secret.
    pub secret_hash: [u8; 32],
    /// Whose token it is.
    pub tenant: String,
    /// The stable client that it stands for.
    pub client: String,
    /// The namespaces it is good for; empty means all of the tenant's.
    pub namespaces: Vec<String>,
    /// What it may do.
    pub roles: Roles,
    /// When it ends, in milliseconds since 1970; `None` for never.
    pub expires_at_ms: Option<u64>,
}

impl TokenRecord {
    /// The record of the plain token `dev`, with every role. It is no secret: only a throw-away cluster on
    /// loopback may have this record, and only because it was asked for.
    #[must_use]
    pub fn dev(tenant: &str) -> TokenRecord {
        TokenRecord {
            id: DEV.to_owned(),
            secret_hash: Sha256::digest(DEV).into(),
            tenant: tenant.to_owned(),
            client: DEV.to_owned(),
            namespaces: Vec::new(),
            roles: Roles::all(),
            expires_at_ms: None,
        }
    }
}

/// A well-formed token that a request presented, not verified yet.
pub struct Presented(Token);

impl Presented {
    /// Reads the value of `Authorization`: the scheme `Bearer`, in any case, and a token, or the plain `dev`.
    #[must_use]
    pub fn from_header(value: &str) -> Option<Presented> {
        let (scheme, token) = value.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        match token.trim_start_matches(' ') {
            DEV => Some(Presented(Token { id: DEV.to_owned(), secret: DEV.to_owned() })),
            token => Token::parse(token).map(Presented),
        }
    }

    /// The id by which to find the record.
    #[must_use]
    pub fn id(&self) -> &str {
        self.0.id()
    }

    /// The principal, if the record is this token's, its hash matches, and it has not ended at `now_ms`.
    ///
    /// The same work is done where there is no record, and hashes are compared in constant time: how long a
    /// refusal takes tells neither whether an id exists nor how much of a secret was right.
    #[must_use]
    pub fn verify(&self, record: Option<&TokenRecord>, now_ms: u64) -> Option<Principal> {
        let expected = record.map_or([0; 32], |record| record.secret_hash);
        let matches = bool::from(self.0.secret_hash().ct_eq(&expected));
        let record = record.filter(|record| matches && record.id == self.0.id)?;
        if record.expires_at_ms.is_some_and(|end_ms| now_ms >= end_ms) {
            return None;
        }
        Some(Principal {
            tenant: record.tenant.clone(),
            client: record.client.clone(),
            namespaces: record.namespaces.clone(),
            roles: record.roles,
        })
    }
}

impl fmt::Debug for Presented {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Reads a configured hash of a secret: 64 hexadecimal digits, as `sha256sum` prints them.
#[must_use]
pub fn parse_hash(text: &str) -> Option<[u8; 32]> {
    if !is_hex(text, 64) {
        return None;
    }
    let mut hash = [0; 32];
    for (byte, digits) in hash.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let digit = |at: usize| char::from(digits[at]).to_digit(16);
        *byte = u8::try_from(digit(0)? * 16 + digit(1)?).ok()?;
    }
    Some(hash)
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::role::Role;

    fn token() -> Token {
        Token::mint([0xab; 10], [0x5c; 32])
    }

    fn record(token: &Token) -> TokenRecord {
        TokenRecord {
            id: token.id().to_owned(),
            secret_hash: token.secret_hash(),
            tenant: "acme".to_owned(),
            client: "worker".to_owned(),
            namespaces: vec!["payments".to_owned()],
            roles: Roles::default().with(Role::Claim),
            expires_at_ms: Some(1_000),
        }
    }

    fn presented(token: &Token) -> Presented {
        Presented::from_header(&format!("Bearer {}", token.to_text())).unwrap()
    }

    #[test]
    fn a_token_as_text() {
        let text = token().to_text();
        assert_eq!(text, format!("hpx_{}_{}", "ab".repeat(10), "5c".repeat(32)));
        assert_eq!(Token::parse(&text), Some(token()));
        assert!(!format!("{:?} {:?}", token(), presented(&token())).contains("5c5c"));
        for bad in [
            "",
            "dev",
            "hpx_",
            "hpx__",
            &text[..text.len() - 1],
            &format!("{text}0"),
            &format!(" {text}"),
            &format!("{text}\n"),
            &text.to_uppercase(),
            &text.replace("hpx_", "hpy_"),
            &text.replace("ab", "AB"),
            &text.replace("5c", "é"),
        ] {
            assert_eq!(Token::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn headers() {
        let text = token().to_text();
        for good in
            [format!("Bearer {text}"), format!("bearer {text}"), format!("BEARER   {text}"), "Bearer dev".to_owned()]
        {
            assert!(Presented::from_header(&good).is_some(), "{good}");
        }
        for bad in [
            "",
            "Bearer",
            "Bearer ",
            "Basic ZGV2",
            "dev",
            &text,
            &format!("Bearer{text}"),
            "Bearer dev x",
            "Bearer Dev",
        ] {
            assert!(Presented::from_header(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn the_right_secret_in_time() {
        let (token, presented) = (token(), presented(&token()));
        let principal = presented.verify(Some(&record(&token)), 999).unwrap();
        assert_eq!((principal.tenant.as_str(), principal.client.as_str()), ("acme", "worker"));
        assert_eq!(principal.namespaces, ["payments"]);
        assert!(principal.roles.contains(Role::Claim) && !principal.roles.contains(Role::Admin));
        let eternal = TokenRecord { expires_at_ms: None, ..record(&token) };
        assert!(presented.verify(Some(&eternal), u64::MAX).is_some());
    }

    #[test]
    fn everything_else_is_refused_alike() {
        let (token, presented) = (token(), presented(&token()));
        let mut hash = token.secret_hash();
        hash[31] ^= 1;
        let zero_hash = TokenRecord { secret_hash: [0; 32], ..record(&token) };
        for (why, stored, now_ms) in [
            ("no record", None, 0),
            ("ended", Some(record(&token)), 1_000),
            ("another secret", Some(TokenRecord { secret_hash: hash, ..record(&token) }), 0),
            ("another id", Some(TokenRecord { id: "cd".repeat(10), ..record(&token) }), 0),
            ("no hash", Some(zero_hash), 0),
        ] {
            assert_eq!(presented.verify(stored.as_ref(), now_ms), None, "{why}");
        }
    }

    #[test]
    fn dev_exists_only_by_its_record() {
        let dev = Presented::from_header("Bearer dev").unwrap();
        assert_eq!(dev.id(), "dev");
        assert_eq!(dev.verify(None, 0), None);
        assert_eq!(dev.verify(Some(&record(&token())), 0), None);
        let principal = dev.verify(Some(&TokenRecord::dev("dev")), 0).unwrap();
        assert_eq!((principal.tenant.as_str(), principal.roles), ("dev", Roles::all()));
        // No minted token has that id.
        assert_eq!(Token::parse("hpx_dev_dev"), None);
    }

    #[test]
    fn configured_hashes() {
        let text = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(parse_hash(text), Some(Sha256::digest(b"").into()));
        for bad in [
            "",
            &text[1..],
            &format!("{text}0"),
            &text.to_uppercase(),
            &text.replace('e', "é"),
            &text.replace('e', "g"),
        ] {
            assert_eq!(parse_hash(bad), None, "{bad}");
        }
    }
}
