//! `If-Match` and `If-None-Match` of what is written under a version, and the `ETag` that carries it.

use hapax_api::Code;
use hapax_machine::command::Expected;
use hapax_machine::ids::Version;
use http::header::{ETAG, IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue};

use crate::calls::Reply;
use crate::problem::Refusal;

/// What a writer believes to stand: `If-Match: "v<version>"`, or `If-None-Match: *` for nothing. One of them is required, so that
/// nobody overwrites what they have not seen.
pub(super) fn expected(headers: &HeaderMap) -> Result<Expected, Refusal> {
    match (headers.get(IF_MATCH), headers.get(IF_NONE_MATCH)) {
        (Some(tag), None) => version(tag).map(Expected::Version).ok_or_else(|| {
            Refusal::detail(Code::RequestInvalid, "If-Match must be one tag as an ETag carried it, \"v<version>\"")
        }),
        (None, Some(any)) if any.as_bytes() == b"*" => Ok(Expected::Absent),
        (None, Some(_)) => Err(Refusal::detail(Code::RequestInvalid, "If-None-Match must be * here")),
        (Some(_), Some(_)) => {
            Err(Refusal::detail(Code::RequestInvalid, "If-Match and If-None-Match exclude each other here"))
        }
        (None, None) => Err(Refusal::new(Code::PreconditionRequired)),
    }
}

fn version(tag: &HeaderValue) -> Option<Version> {
    let digits = tag.to_str().ok()?.trim().strip_prefix("\"v")?.strip_suffix('"')?;
    let plain = !digits.starts_with('0') && digits.len() <= 16 && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| plain).map(Version)
}

/// Adds the tag of `version`.
pub(super) fn tagged(mut reply: Reply, version: Version) -> Reply {
    if let Ok(value) = HeaderValue::try_from(format!("\"v{version}\"")) {
        reply.headers.insert(ETAG, value);
    }
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(http::HeaderName, &str)]) -> Result<Expected, Code> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(name.clone(), HeaderValue::from_str(value).unwrap());
        }
        expected(&headers).map_err(|refusal| refusal.code())
    }

    #[test]
    fn one_precondition_is_stated() {
        assert_eq!(of(&[(IF_MATCH, "\"v7\"")]), Ok(Expected::Version(Version(7))));
        assert_eq!(of(&[(IF_NONE_MATCH, "*")]), Ok(Expected::Absent));
        assert_eq!(of(&[]), Err(Code::PreconditionRequired));
        for wrong in [
            "*",
            "v7",
            "\"7\"",
            "\"v\"",
            "\"v07\"",
            "\"v-1\"",
            "W/\"v7\"",
            "\"v1\", \"v2\"",
            "\"v99999999999999999\"",
        ] {
            assert_eq!(of(&[(IF_MATCH, wrong)]), Err(Code::RequestInvalid), "{wrong}");
        }
        assert_eq!(of(&[(IF_NONE_MATCH, "\"v7\"")]), Err(Code::RequestInvalid));
        assert_eq!(of(&[(IF_MATCH, "\"v7\""), (IF_NONE_MATCH, "*")]), Err(Code::RequestInvalid));
    }
}
