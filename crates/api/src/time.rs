//! Instants on the wire: RFC 3339, UTC, exactly three decimals of a second.
//! Kept as milliseconds since 1970; no clock is read here.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::{KnownFormat, ObjectBuilder, RefOr, Schema, SchemaFormat, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::text::Malformed;

const DAY_MS: u64 = 86_400_000;

/// Milliseconds since 1970-01-01T00:00:00Z, written as `2026-07-18T14:02:10.000Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl fmt::Display for Instant {
    /// Civil date from a day count (H. Hinnant's algorithm), in an era of 400 years that starts in March.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_day = self.0 % DAY_MS;
        let days = self.0 / DAY_MS + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
        let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
        let year = year_of_era + era * 400 + u64::from(month <= 2);
        let (hour, minute) = (in_day / 3_600_000, in_day / 60_000 % 60);
        let (second, milli) = (in_day / 1_000 % 60, in_day % 1_000);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
    }
}

impl FromStr for Instant {
    type Err = Malformed;

    /// Reads exactly the form that `Display` writes; no other offset and no other precision.
    fn from_str(text: &str) -> Result<Instant, Malformed> {
        const WRONG: Malformed = Malformed("must be RFC 3339 in UTC with milliseconds, as 2026-07-18T14:02:10.000Z");
        let digits = |from: usize, to: usize| -> Result<u64, Malformed> {
            let part = text.get(from..to).ok_or(WRONG)?;
            if !part.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(WRONG);
            }
            part.parse().map_err(|_| WRONG)
        };
        if text.len() != 24 {
            return Err(WRONG);
        }
        let (year, month, day) = (digits(0, 4)?, digits(5, 7)?, digits(8, 10)?);
        let clock = (digits(11, 13)? * 3_600 + digits(14, 16)? * 60 + digits(17, 19)?) * 1_000 + digits(20, 23)?;
        if year < 1970 || !(1..=12).contains(&month) || day == 0 {
            return Err(WRONG);
        }
        let shifted_year = year - u64::from(month <= 2);
        let (era, year_of_era) = (shifted_year / 400, shifted_year % 400);
        let shifted_month = (month + 9) % 12;
        let day_of_year = (153 * shifted_month + 2) / 5 + day - 1;
        let days = era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        let days = days.checked_sub(719_468).ok_or(WRONG)?;
        let instant = Instant(days * DAY_MS + clock);
        // Writing it back settles separators, days that a month does not have, and hours beyond 23.
        if instant.to_string() == text { Ok(instant) } else { Err(WRONG) }
    }
}

impl Serialize for Instant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Instant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Instant, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl PartialSchema for Instant {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
            .description(Some("RFC 3339, UTC, milliseconds."))
            .examples(["2026-07-18T14:02:10.000Z"])
            .into()
    }
}

impl ToSchema for Instant {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_instants() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_123, "2000-02-29T00:00:00.123Z"),
            (1_784_383_330_000, "2026-07-18T14:02:10.000Z"),
            (4_107_542_399_999, "2100-02-28T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(Instant(ms).to_string(), text);
            assert_eq!(text.parse(), Ok(Instant(ms)));
        }
    }

    #[test]
    fn other_forms_are_refused() {
        for text in [
            "",
            "2026-07-18T14:02:10Z",
            "2026-07-18T14:02:10.000+00:00",
            "2026-02-29T00:00:00.000Z",
            "2026-13-01T00:00:00.000Z",
            "2026-01-01T24:00:00.000Z",
            "2026-01-01T23:60:00.000Z",
            "2026-01-01 00:00:00.000Z",
            "1969-12-31T23:59:59.999Z",
            "+026-01-01T00:00:00.000Z",
            "2026-01-01T00:00:00.0é0",
        ] {
            assert!(text.parse::<Instant>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn round_trip(ms in 0u64..253_402_300_800_000) {
            prop_assert_eq!(Instant(ms).to_string().parse(), Ok(Instant(ms)));
        }
    }
}
