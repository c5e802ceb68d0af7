//! What a signer says of the certificate that it has issued for a pod: it is for the key that was
//! asked about, lives as long as was asked at most, and the status tells its times.
use crate::conform;
use crate::field::BadValue;
use crate::pem;
use crate::rules::Field;
use crate::x509::{self, Certificate, KeyKind};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};

const LONGEST: usize = 100 * 1024;
/// How far the signer's clock may be from ours.
const SKEW: SignedDuration = SignedDuration::from_mins(5);
const SHORTEST: SignedDuration = SignedDuration::from_hours(1);
/// Between being valid and being renewed, and before the end again.
const MARGIN: SignedDuration = SignedDuration::from_mins(10);

/// The first thing that is wrong ends it: what comes later builds on it.
pub fn issued(new: &Field<'_, '_>, old: &Field<'_, '_>, now: Timestamp) {
    let chain = new.at("status.certificateChain");
    if chain.text().len() > LONGEST {
        return chain.too_long(LONGEST);
    }
    let mut blocks = pem::blocks(chain.text().as_bytes());
    let Some(leaf) = blocks.next() else {
        return chain.invalid("issued certificate chain must contain at least one certificate");
    };
    if leaf.kind != "CERTIFICATE" {
        let detail = "issued certificate chain must consist entirely of CERTIFICATE PEM blocks";
        return chain.invalid(detail);
    }
    let Ok(leaf) = x509::certificate(&leaf.bytes) else {
        return chain.invalid("leaf certificate does not parse as valid X.509");
    };
    let before = new.count();
    names(&leaf, &chain);
    if !key(&leaf, &chain, new, old) {
        return;
    }
    times(&leaf, &chain, new, now, before);
    if new.count() != before {
        return;
    }
    for block in blocks {
        if block.kind != "CERTIFICATE" {
            // Upstream's spelling.
            let detail = "issued certificate chain must consist entirely of CERTFICATE PEM blocks";
            return chain.invalid(detail);
        }
        if x509::certificate(&block.bytes).is_err() {
            return chain.invalid("intermediate certificate does not parse as valid X.509");
        }
    }
}

fn names(leaf: &Certificate, chain: &Field<'_, '_>) {
    for name in &leaf.dns_names {
        if name.is_empty() {
            chain.invalid_as(name, "leaf certificate should not contain empty DNSName");
        }
        if name.contains("..") {
            chain.invalid_as(name, "leaf certificate's DNSName should not contain '..'");
        }
        if name.starts_with('.') || name.ends_with('.') {
            let detail = "leaf certificate's DNSName should not start or end with '.'";
            chain.invalid_as(name, detail);
        }
    }
    for address in leaf.emails.iter().filter(|address| !conform::conforms("email", address)) {
        chain.invalid_as(address, "leaf certificate should not contain invalid EmailAddress");
    }
}

/// Whether it is for the key that was asked about.
fn key(
    leaf: &Certificate,
    chain: &Field<'_, '_>,
    new: &Field<'_, '_>,
    old: &Field<'_, '_>,
) -> bool {
    let asked = old.at("spec.stubPKCS10Request");
    if asked.is_empty() {
        let detail = "must be a valid PKIX-serialized public key";
        new.at("spec.pkixPublicKey").invalid_as(BadValue::OMITTED, detail);
        return false;
    }
    let Ok(asked) = x509::request(&STANDARD.decode(asked.text()).unwrap_or_default()) else {
        let detail = "must be a valid PKCS#10 CSR";
        new.at("spec.stubPKCS10Request").invalid_as(BadValue::OMITTED, detail);
        return false;
    };
    let is_it = asked.key.kind == KeyKind::Other || asked.key == leaf.key;
    if !is_it {
        chain.invalid("leaf certificate was not issued to the requested public key");
    }
    is_it
}

fn times(
    leaf: &Certificate,
    chain: &Field<'_, '_>,
    new: &Field<'_, '_>,
    now: Timestamp,
    before: usize,
) {
    let (begin, end) = (new.at("status.notBefore"), new.at("status.notAfter"));
    let refresh = new.at("status.beginRefreshAt");
    const CONSISTENT: &str = "must be present and consistent with the issued certificate";
    const BETWEEN: &str = "must be present and in the range [notbefore+10min, notafter-10min]";
    for (field, detail) in [(&begin, CONSISTENT), (&end, CONSISTENT), (&refresh, BETWEEN)] {
        if !field.exists() {
            field.required(detail);
        }
    }
    let at = |field: &Field<'_, '_>| field.text().parse::<Timestamp>().ok();
    let (Some(begins), Some(ends), Some(refreshed)) = (at(&begin), at(&end), at(&refresh)) else {
        return;
    };
    if new.count() != before {
        return;
    }
    if Timestamp::from_second(leaf.not_before).ok() != Some(begins) {
        return begin.invalid("must be set to the NotBefore time encoded in the leaf certificate");
    }
    if begins.duration_since(now).abs() >= SKEW {
        let detail = "must be set to within 5 minutes of kube-apiserver's current time";
        return begin.invalid(detail);
    }
    if Timestamp::from_second(leaf.not_after).ok() != Some(ends) {
        return end.invalid("must be set to the NotAfter time encoded in the leaf certificate");
    }
    let life = ends.duration_since(begins);
    let nanos = || i64::try_from(life.as_nanos()).unwrap_or(i64::MAX);
    if life < SHORTEST {
        return chain.invalid_as(nanos(), "leaf certificate lifetime must be >= 1 hour");
    }
    let most = new.at("spec.maxExpirationSeconds").int();
    if life > SignedDuration::from_secs(most) {
        let detail =
            format!("leaf certificate lifetime must be <= spec.maxExpirationSeconds ({most})");
        return chain.invalid_as(nanos(), detail);
    }
    if refreshed.duration_since(begins) < MARGIN {
        refresh.invalid("must be at least 10 minutes after status.notBefore");
    } else if ends.duration_since(refreshed) < MARGIN {
        refresh.invalid("must be at least 10 minutes before status.notAfter");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::find_kind;
    use crate::rules::check::collect;
    use rcgen::{CertificateParams, Issuer, KeyPair};
    use serde_json::{Value, json};

    const NOW: i64 = 1_800_000_000;
    const HOUR: i64 = 3600;

    fn time(from_now: i64) -> String {
        Timestamp::from_second(NOW + from_now).unwrap().to_string()
    }

    /// A certificate for a key, from and until so many seconds from now.
    fn chain(key: &KeyPair, from: i64, until: i64, names: &[&str]) -> String {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        let day = rcgen::date_time_ymd(2027, 1, 15);
        let since = NOW - day.unix_timestamp();
        let at = |second: i64| day + std::time::Duration::from_secs((since + second) as u64);
        (params.not_before, params.not_after) = (at(from), at(until));
        let issuer = Issuer::from_params(&params, key);
        params.signed_by(key, &issuer).unwrap().pem()
    }

    fn said(key: &KeyPair, status: &Value) -> Vec<String> {
        let stub = CertificateParams::default().serialize_request(key).unwrap();
        let request = json!({
            "spec": { "stubPKCS10Request": STANDARD.encode(stub.der()), "maxExpirationSeconds": 86400 },
            "status": status,
        });
        let ty = find_kind("certificates.k8s.io/v1", "PodCertificateRequest").unwrap().ty();
        let now = Timestamp::from_second(NOW).unwrap();
        let chain = status["certificateChain"].as_str().unwrap_or_default();
        let quoted = crate::quote::Quoted(chain).to_string();
        collect(&request, ty, |field| issued(field, field, now))
            .iter()
            .map(|error| error.to_string().replace(&quoted, "CHAIN"))
            .collect()
    }

    fn status(chain: &str, from: i64, until: i64, refresh: i64) -> Value {
        json!({ "certificateChain": chain, "notBefore": time(from), "notAfter": time(until),
            "beginRefreshAt": time(refresh) })
    }

    #[test]
    fn a_certificate_is_for_the_key_and_its_times_are_told() {
        let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let sound = chain(&key, 0, 2 * HOUR, &["a.b"]);
        let cases = [
            (status(&sound, 0, 2 * HOUR, HOUR), ""),
            (status(&format!("{sound}{sound}"), 0, 2 * HOUR, HOUR), ""),
            (
                status("", 0, 2 * HOUR, HOUR),
                "status.certificateChain: Invalid value: CHAIN: issued certificate chain must contain at least one certificate",
            ),
            (
                status(&sound.replace("CERTIFICATE", "KEY"), 0, 2 * HOUR, HOUR),
                "status.certificateChain: Invalid value: CHAIN: issued certificate chain must consist entirely of CERTIFICATE PEM blocks",
            ),
            (
                status("-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----\n", 0, 0, 0),
                "status.certificateChain: Invalid value: CHAIN: leaf certificate does not parse as valid X.509",
            ),
            (
                status(&chain(&other, 0, 2 * HOUR, &[]), 0, 2 * HOUR, HOUR),
                "status.certificateChain: Invalid value: CHAIN: leaf certificate was not issued to the requested public key",
            ),
            (
                status(&chain(&key, 0, 2 * HOUR, &[".a..b"]), 0, 2 * HOUR, HOUR),
                "status.certificateChain: Invalid value: \".a..b\": leaf certificate's DNSName should not contain '..'; \
                 status.certificateChain: Invalid value: \".a..b\": leaf certificate's DNSName should not start or end with '.'",
            ),
            (
                json!({ "certificateChain": sound, "notBefore": time(0) }),
                "status.notAfter: Required value: must be present and consistent with the issued certificate; \
                 status.beginRefreshAt: Required value: must be present and in the range [notbefore+10min, notafter-10min]",
            ),
            (
                status(&sound, 1, 2 * HOUR, HOUR),
                "status.notBefore: Invalid value: \"2027-01-15T08:00:01Z\": must be set to the NotBefore time encoded in the leaf certificate",
            ),
            (
                status(&chain(&key, 300, 2 * HOUR, &[]), 300, 2 * HOUR, HOUR),
                "status.notBefore: Invalid value: \"2027-01-15T08:05:00Z\": must be set to within 5 minutes of kube-apiserver's current time",
            ),
            (status(&chain(&key, 299, 2 * HOUR, &[]), 299, 2 * HOUR, HOUR), ""),
            (
                status(&sound, 0, HOUR, HOUR),
                "status.notAfter: Invalid value: \"2027-01-15T09:00:00Z\": must be set to the NotAfter time encoded in the leaf certificate",
            ),
            (
                status(&chain(&key, 0, HOUR - 1, &[]), 0, HOUR - 1, 1800),
                "status.certificateChain: Invalid value: 3599000000000: leaf certificate lifetime must be >= 1 hour",
            ),
            (
                status(&chain(&key, 0, 25 * HOUR, &[]), 0, 25 * HOUR, HOUR),
                "status.certificateChain: Invalid value: 90000000000000: leaf certificate lifetime must be <= spec.maxExpirationSeconds (86400)",
            ),
            (
                status(&sound, 0, 2 * HOUR, 599),
                "status.beginRefreshAt: Invalid value: \"2027-01-15T08:09:59Z\": must be at least 10 minutes after status.notBefore",
            ),
            (
                status(&sound, 0, 2 * HOUR, 2 * HOUR - 599),
                "status.beginRefreshAt: Invalid value: \"2027-01-15T09:50:01Z\": must be at least 10 minutes before status.notAfter",
            ),
            (
                status(
                    &format!(
                        "{sound}-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----\n"
                    ),
                    0,
                    2 * HOUR,
                    HOUR,
                ),
                "status.certificateChain: Invalid value: CHAIN: intermediate certificate does not parse as valid X.509",
            ),
        ];
        for (status, want) in cases {
            assert_eq!(said(&key, &status).join("; "), want, "{status}");
        }
    }
}
