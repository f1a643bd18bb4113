//! Names of zones: IANA's, spelled exactly, never the host's own zone.

use chrono_tz::{TZ_VARIANTS, Tz};

/// Largest number of wrong letters for which a name is suggested.
const NEAR: usize = 3;

/// A name that is no zone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown time zone {name:?}; {hint}")]
pub struct UnknownZone {
    /// As written, shortened.
    pub name: String,
    /// The nearest known one, or an example.
    pub hint: String,
}

/// Reads an IANA name such as `Asia/Shanghai`.
pub fn parse_zone(name: &str) -> Result<Tz, UnknownZone> {
    name.parse().map_err(|_| {
        // A name of any length may come from outside; the message stays readable.
        let name: String = name.chars().take(64).collect();
        let wanted = name.trim().to_ascii_lowercase().replace(' ', "_");
        let distance = |tz: &Tz| strsim::levenshtein(&tz.name().to_ascii_lowercase(), &wanted);
        let city = |tz: &Tz| {
            let known = tz.name().to_ascii_lowercase();
            wanted.len() > 2 && known.rsplit('/').next() == Some(wanted.as_str())
        };
        let near = TZ_VARIANTS.into_iter().find(city).or_else(|| {
            TZ_VARIANTS
                .into_iter()
                .min_by_key(distance)
                .filter(|tz| distance(tz) <= NEAR.min(wanted.chars().count() / 3))
        });
        let hint = match near {
            Some(tz) => format!("did you mean {tz}?"),
            None => "use an IANA name such as UTC or Asia/Shanghai".to_owned(),
        };
        UnknownZone { name, hint }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, expected: &str) {
        let seen = parse_zone(name).map_or_else(|e| e.to_string(), |tz| tz.to_string());
        assert!(seen.contains(expected), "{name:?}: {seen}");
    }

    #[test]
    fn only_exact_names_are_zones_and_near_ones_are_suggested() {
        check("Asia/Shanghai", "Asia/Shanghai");
        check("asia/shanghai", "did you mean Asia/Shanghai?");
        check("Europe/Berlin ", "did you mean Europe/Berlin?");
        check("New York", "did you mean America/New_York?");
        check("shanghai", "did you mean Asia/Shanghai?");
        check("Europe/Berln", "did you mean Europe/Berlin?");
        check("", "use an IANA name");
        check("东京", "use an IANA name");
        check("NO", "use an IANA name");
        check("local time of the host", "use an IANA name");
        check(&"A".repeat(100_000), "use an IANA name");
        check("Asia/Shanghai\0", "unknown time zone");
    }
}
