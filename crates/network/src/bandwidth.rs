//! How fast a pod's network may be: what its annotations say.
use crate::PodNetworkError;
use std::collections::BTreeMap;

/// Upstream's annotations, in bits a second: what comes to the pod, and what it sends.
const INGRESS: &str = "kubernetes.io/ingress-bandwidth";
const EGRESS: &str = "kubernetes.io/egress-bandwidth";

/// Bits a second in each direction; `None`: as many as there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bandwidth {
    pub ingress: Option<u64>,
    pub egress: Option<u64>,
}

impl Bandwidth {
    /// As upstream reads them (`pkg/util/bandwidth/utils.go`): a thousand bits to a petabit.
    #[cfg(feature = "live")]
    pub fn of(annotations: &BTreeMap<String, String>) -> Result<Bandwidth, PodNetworkError> {
        let read = |name: &'static str| {
            let Some(text) = annotations.get(name) else { return Ok(None) };
            let wrong = |problem: String| PodNetworkError::Bandwidth { name, problem };
            let quantity = api::quantity::Quantity::parse(text)
                .map_err(|error| wrong(error.to_string()))?
                .value();
            match quantity {
                ..1_000 => Err(wrong("resource is unreasonably small (< 1kbit)".to_owned())),
                1_000..=1_000_000_000_000_000 => Ok(Some(quantity.unsigned_abs())),
                _ => Err(wrong("resource is unreasonably large (> 1Pbit)".to_owned())),
            }
        };
        Ok(Bandwidth { ingress: read(INGRESS)?, egress: read(EGRESS)? })
    }
}

/// Bytes that may pass at once: those of a twentieth of a second, and some packets at least.
pub fn burst(bits_per_second: u64) -> u32 {
    const LEAST: u64 = 32 << 10;
    const MOST: u64 = 32 << 20;
    (bits_per_second / 8 / 20).clamp(LEAST, MOST) as u32
}

#[cfg(all(test, feature = "live"))]
mod tests {
    use super::*;

    #[test]
    fn annotations_are_read_as_upstream_reads_them() {
        let check = |ingress: &str, egress: &str, expected: &str| {
            let both = [(INGRESS, ingress), (EGRESS, egress)].into_iter();
            let given = both.filter(|(_, text)| !text.is_empty());
            let given = given.map(|(name, text)| (name.to_owned(), text.to_owned())).collect();
            let said = match Bandwidth::of(&given) {
                Ok(Bandwidth { ingress, egress }) => format!("{ingress:?} {egress:?}"),
                Err(error) => error.to_string(),
            };
            assert_eq!(said, expected);
        };
        check("", "", "None None");
        check("10M", "1k", "Some(10000000) Some(1000)");
        check("1P", "", "Some(1000000000000000) None");
        let annotation = "the annotation kubernetes.io/ingress-bandwidth";
        check("999", "", &format!("{annotation}: resource is unreasonably small (< 1kbit)"));
        check("2P", "", &format!("{annotation}: resource is unreasonably large (> 1Pbit)"));
        let said = Bandwidth::of(&BTreeMap::from([(EGRESS.to_owned(), "fast".to_owned())]));
        assert!(said.is_err());
    }

    #[test]
    fn a_burst_is_some_packets_at_least() {
        assert_eq!([1_000, 10_000_000, u64::MAX].map(burst), [32768, 62500, 33_554_432]);
    }
}
