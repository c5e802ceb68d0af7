//! A certificate for a subject that rcgen cannot write: several organizations, above all.
//!
//! rcgen makes the certificate with an empty subject; here the subject is put in its place, and what
//! came of that is signed again. DER needs no more for it than lengths.
use api::pem;
use api::x509::Subject;
use rcgen::{KeyPair, SigningKey};

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OID: u8 = 0x06;
const UTF8: u8 = 0x0c;
const BIT_STRING: u8 = 0x03;

/// Version, serial number, algorithm, issuer and validity come before the subject.
const BEFORE: usize = 5;

/// The certificate as PEM, for this subject and signed with this key.
pub fn for_subject(der: &[u8], subject: &Subject, key: &KeyPair) -> Result<String, String> {
    let malformed = || "a certificate that was just made cannot be read".to_owned();
    let (certificate, _) = element(der).ok_or_else(malformed)?;
    let (body, rest) = element(certificate).ok_or_else(malformed)?;
    let (_, after_algorithm) = element(rest).ok_or_else(malformed)?;
    let algorithm = &rest[..rest.len() - after_algorithm.len()];
    let mut after = body;
    for _ in 0..BEFORE {
        after = element(after).ok_or_else(malformed)?.1;
    }
    let before = &body[..body.len() - after.len()];
    let (_, after) = element(after).ok_or_else(malformed)?;
    let body = encoded(SEQUENCE, &[before, &name(subject), after].concat());
    let signature = key.sign(&body).map_err(|error| error.to_string())?;
    let signature = encoded(BIT_STRING, &[&[0], &signature[..]].concat());
    let der = encoded(SEQUENCE, &[&body, algorithm, &signature].concat());
    Ok(pem::encode("CERTIFICATE", &der))
}

/// What is inside of the first element, and what follows it.
fn element(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let [_, first, rest @ ..] = der else { return None };
    let (length, body) = match usize::from(*first) {
        short @ ..0x80 => (short, rest),
        long => {
            let (digits, body) = rest.split_at_checked(long & 0x7f).filter(|_| long <= 0x84)?;
            (digits.iter().fold(0, |n, digit| n << 8 | usize::from(*digit)), body)
        }
    };
    body.split_at_checked(length)
}

fn encoded(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let digits = &length[length.iter().position(|digit| *digit != 0).unwrap_or(length.len() - 1)..];
    let mut out = vec![tag];
    if content.len() < 0x80 {
        out.push(digits[0]);
    } else {
        // At most eight digits.
        out.push(0x80 | digits.len() as u8);
        out.extend_from_slice(digits);
    }
    out.extend_from_slice(content);
    out
}

fn name(subject: &Subject) -> Vec<u8> {
    let attributes = subject.attributes.iter().map(|(kind, text)| {
        let pair = [encoded(OID, &arcs(kind)), encoded(UTF8, text.as_bytes())].concat();
        encoded(SET, &encoded(SEQUENCE, &pair))
    });
    encoded(SEQUENCE, &attributes.collect::<Vec<_>>().concat())
}

/// Types of subjects have small arcs: one byte each, the first two in one.
fn arcs(kind: &[u64]) -> Vec<u8> {
    let [first, second, rest @ ..] = kind else { return Vec::new() };
    let all = std::iter::once(first * 40 + second).chain(rest.iter().copied());
    all.map(|arc| u8::try_from(arc).unwrap_or_default()).collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A request with such attributes, each an arc of the directory's types, a tag and the text's
    /// bytes: what no library would write.
    pub fn request(attributes: &[(u8, u8, &[u8])]) -> String {
        let key = KeyPair::generate().expect("a key");
        let made = rcgen::CertificateParams::default().serialize_request(&key).expect("a request");
        let (request, _) = element(made.der()).expect("an element");
        let (body, rest) = element(request).expect("an element");
        let (_, after_algorithm) = element(rest).expect("an element");
        let algorithm = &rest[..rest.len() - after_algorithm.len()];
        let (_, after) = element(body).expect("the version");
        let version = &body[..body.len() - after.len()];
        let (_, after) = element(after).expect("the subject");
        let attributes = attributes.iter().map(|(arc, tag, text)| {
            let pair = [encoded(OID, &[0x55, 4, *arc]), encoded(*tag, text)].concat();
            encoded(SET, &encoded(SEQUENCE, &pair))
        });
        let subject = encoded(SEQUENCE, &attributes.collect::<Vec<_>>().concat());
        let body = encoded(SEQUENCE, &[version, &subject, after].concat());
        let signature = key.sign(&body).expect("a signature");
        let signature = encoded(BIT_STRING, &[&[0], &signature[..]].concat());
        pem::encode(
            "CERTIFICATE REQUEST",
            &encoded(SEQUENCE, &[&body, algorithm, &signature].concat()),
        )
    }
}
