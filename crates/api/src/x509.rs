//! Certificates and requests for them, as far as rules look into them.
//!
//! What is malformed is told in the words of Go's `crypto/x509`, as far as its outermost layers go: a
//! client sees those. Signatures are checked where the algorithm is one of RSA from 2048 bits, ECDSA on
//! P-256 and P-384, and Ed25519; of others nothing is known, and nothing is said.
use crate::pem;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::net::IpAddr;
use x509_parser::asn1_rs::FromDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::error::X509Error;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::public_key::PublicKey;
use x509_parser::x509::{SubjectPublicKeyInfo, X509Name};

pub struct Certificate {
    pub subject: Subject,
    pub is_authority: bool,
    /// Seconds since 1970.
    pub not_before: i64,
    pub not_after: i64,
    pub dns_names: Vec<String>,
    pub emails: Vec<String>,
    pub key: Key,
}

/// A public key.
#[derive(PartialEq)]
pub struct Key {
    pub kind: KeyKind,
    der: Vec<u8>,
}

impl Key {
    /// Its `SubjectPublicKeyInfo`.
    pub fn der(&self) -> &[u8] {
        &self.der
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum KeyKind {
    Ed25519,
    /// By the name that Go has for its curve.
    Elliptic(&'static str),
    /// With so many bits.
    Rsa(usize),
    Other,
}

/// Whom a certificate is for, or asked for. Whoever decides about a subject and whoever signs it read
/// it here: what is in it twice, or in a script of its own, is the same to both.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subject {
    /// The last one, if there are several; empty if there is none.
    pub common_name: String,
    pub organizations: Vec<String>,
    /// Everything that Go's `pkix.Name` knows, in order: the type's arcs and the text.
    pub attributes: Vec<(&'static [u64], String)>,
}

pub struct Request {
    pub subject: Subject,
    /// The request as it was read.
    pub der: Vec<u8>,
    pub key: Key,
    /// What is wrong with its signature.
    pub forged: Option<&'static str>,
}

/// Reads one certificate.
pub fn certificate(der: &[u8]) -> Result<Certificate, &'static str> {
    let outer = sequence(der).ok_or("x509: malformed certificate")?;
    if !outer.1.is_empty() {
        return Err("x509: trailing data");
    }
    sequence(outer.0).ok_or("x509: malformed tbs certificate")?;
    let (_, read) = X509Certificate::from_der(der).map_err(|_| "x509: malformed certificate")?;
    let mut certificate = Certificate {
        subject: subject(read.subject()).ok_or("x509: invalid RDNSequence")?,
        is_authority: false,
        not_before: read.validity().not_before.timestamp(),
        not_after: read.validity().not_after.timestamp(),
        dns_names: Vec::new(),
        emails: Vec::new(),
        key: key(read.public_key()),
    };
    for extension in read.extensions() {
        match extension.parsed_extension() {
            ParsedExtension::BasicConstraints(basic) => certificate.is_authority = basic.ca,
            ParsedExtension::SubjectAlternativeName(names) => {
                for name in &names.general_names {
                    match name {
                        GeneralName::DNSName(name) => certificate.dns_names.push((*name).into()),
                        GeneralName::RFC822Name(name) => certificate.emails.push((*name).into()),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    Ok(certificate)
}

/// Reads certificates that follow each other.
pub fn certificates(der: &[u8]) -> Result<Vec<Certificate>, &'static str> {
    let (mut all, mut rest) = (Vec::new(), der);
    while !rest.is_empty() {
        let (_, after) = sequence(rest).ok_or("x509: malformed certificate")?;
        all.push(certificate(&rest[..rest.len() - after.len()])?);
        rest = after;
    }
    Ok(all)
}

/// Reads the request in a `CertificateSigningRequest`: PEM, in base64.
pub fn request_in(spec: &str) -> Result<Request, &'static str> {
    let bytes = STANDARD.decode(spec).unwrap_or_default();
    match pem::blocks(&bytes).next().filter(|block| block.kind == "CERTIFICATE REQUEST") {
        Some(block) => request(&block.bytes),
        None => Err("PEM block type must be CERTIFICATE REQUEST"),
    }
}

/// Reads a PKCS #10 request.
pub fn request(der: &[u8]) -> Result<Request, &'static str> {
    const TRUNCATED: &str = "asn1: syntax error: data truncated";
    let outer = match der {
        [] => return Err("asn1: syntax error: sequence truncated"),
        [0x30, ..] => sequence(der).ok_or(TRUNCATED)?,
        _ => return Err(TRUNCATED),
    };
    if !outer.1.is_empty() {
        return Err("asn1: syntax error: trailing data");
    }
    let (_, read) = X509CertificationRequest::from_der(der)
        .map_err(|_| "asn1: structure error: malformed certificate request")?;
    let key = key(&read.certification_request_info.subject_pki);
    let forged = match read.verify_signature() {
        Err(X509Error::SignatureUnsupportedAlgorithm) | Ok(()) => None,
        // Keys so short are not verified here.
        Err(_) if matches!(key.kind, KeyKind::Rsa(..2048)) => None,
        Err(_) => Some(match key.kind {
            KeyKind::Ed25519 => "x509: Ed25519 verification failure",
            KeyKind::Elliptic(_) => "x509: ECDSA verification failure",
            _ => "crypto/rsa: verification error",
        }),
    };
    let subject = subject(&read.certification_request_info.subject)
        .ok_or("asn1: syntax error: invalid string in subject")?;
    Ok(Request { subject, der: der.to_vec(), key, forged })
}

/// Names beside the subject, in the order in which they are written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AlternativeNames {
    pub dns_names: Vec<String>,
    pub emails: Vec<String>,
    pub uris: Vec<String>,
    pub addresses: Vec<IpAddr>,
}

impl Request {
    /// The names beside the subject that it asks for.
    pub fn alternative_names(&self) -> AlternativeNames {
        let mut names = AlternativeNames::default();
        let Ok((_, read)) = X509CertificationRequest::from_der(&self.der) else { return names };
        for extension in read.requested_extensions().into_iter().flatten() {
            let ParsedExtension::SubjectAlternativeName(all) = extension else { continue };
            for name in &all.general_names {
                match name {
                    GeneralName::DNSName(name) => names.dns_names.push((*name).into()),
                    GeneralName::RFC822Name(name) => names.emails.push((*name).into()),
                    GeneralName::URI(name) => names.uris.push((*name).into()),
                    GeneralName::IPAddress(bytes) => names.addresses.extend(address(bytes)),
                    _ => {}
                }
            }
        }
        names
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        _ => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
    }
}

const COMMON_NAME: &[u64] = &[2, 5, 4, 3];
const ORGANIZATION: &[u64] = &[2, 5, 4, 10];

/// What of a subject has a meaning to Go's `pkix.Name`; the rest it forgets: country, organization and
/// its unit, locality, province, street, postal code, name, serial number.
const KNOWN: &[&[u64]] = &[
    &[2, 5, 4, 6],
    ORGANIZATION,
    &[2, 5, 4, 11],
    &[2, 5, 4, 7],
    &[2, 5, 4, 8],
    &[2, 5, 4, 9],
    &[2, 5, 4, 17],
    COMMON_NAME,
    &[2, 5, 4, 5],
];

/// None if a text in it is not what its type says.
fn subject(name: &X509Name<'_>) -> Option<Subject> {
    let mut subject = Subject::default();
    for attribute in name.iter_attributes() {
        let arcs: Vec<u64> = attribute.attr_type().iter()?.collect();
        let Some(kind) = KNOWN.iter().find(|known| **known == arcs) else { continue };
        let value = attribute.attr_value();
        let Some(text) = string(value.tag().0, value.data)? else { continue };
        match *kind {
            COMMON_NAME => {
                subject.common_name.clone_from(&text);
                // It is one of those that there is one of.
                subject.attributes.retain(|(kind, _)| *kind != COMMON_NAME);
            }
            ORGANIZATION => subject.organizations.push(text.clone()),
            _ => {}
        }
        subject.attributes.push((kind, text));
    }
    Some(subject)
}

/// The text of a value by its universal tag: none if it is no text, and a failure if it is broken.
fn string(tag: u32, data: &[u8]) -> Option<Option<String>> {
    let ascii = |allowed: fn(&u8) -> bool| {
        data.iter().all(allowed).then(|| String::from_utf8_lossy(data).into_owned())
    };
    Some(Some(match tag {
        12 => String::from_utf8(data.to_vec()).ok()?,
        18 => ascii(|byte| byte.is_ascii_digit() || *byte == b' ')?,
        // Go takes these of others for printable too.
        19 => ascii(|byte| byte.is_ascii_alphanumeric() || b" '()+,-./:=?*&".contains(byte))?,
        // Latin 1, as everybody reads it.
        20 => data.iter().map(|byte| char::from(*byte)).collect(),
        22 => ascii(u8::is_ascii)?,
        30 => {
            let (units, []) = data.as_chunks::<2>() else { return None };
            let units: Vec<u16> = units.iter().map(|unit| u16::from_be_bytes(*unit)).collect();
            String::from_utf16(units.strip_suffix(&[0]).unwrap_or(&units)).ok()?
        }
        _ => return Some(None),
    }))
}

fn key(info: &SubjectPublicKeyInfo<'_>) -> Key {
    const CURVES: &[(&str, &str)] = &[
        ("1.3.132.0.33", "P-224"),
        ("1.2.840.10045.3.1.7", "P-256"),
        ("1.3.132.0.34", "P-384"),
        ("1.3.132.0.35", "P-521"),
    ];
    let algorithm = info.algorithm.algorithm.to_id_string();
    let curve = || {
        let name = info.algorithm.parameters.as_ref()?.as_oid().ok()?.to_id_string();
        CURVES.iter().find(|(oid, _)| *oid == name).map(|(_, name)| *name)
    };
    let kind = match (algorithm.as_str(), info.parsed()) {
        ("1.3.101.112", _) => KeyKind::Ed25519,
        ("1.2.840.10045.2.1", _) => curve().map_or(KeyKind::Other, KeyKind::Elliptic),
        (_, Ok(PublicKey::RSA(rsa))) => {
            let first = rsa.modulus.iter().position(|byte| *byte != 0).unwrap_or(0);
            KeyKind::Rsa((rsa.modulus.len() - first) * 8)
        }
        _ => KeyKind::Other,
    };
    Key { kind, der: info.raw.to_vec() }
}

/// What is inside of a DER sequence, and what follows it.
fn sequence(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let [0x30, first, rest @ ..] = der else { return None };
    let (length, body) = match usize::from(*first) {
        short @ ..0x80 => (short, rest),
        long => {
            let (digits, body) = rest.split_at_checked(long & 0x7f).filter(|_| long <= 0x84)?;
            (digits.iter().fold(0, |n, digit| n << 8 | usize::from(*digit)), body)
        }
    };
    body.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sort_of_text_is_read() {
        for (tag, data, expected) in [
            (12, &b"j\xc3\xbcrgen"[..], Some(Some("jürgen"))),
            (12, b"\xff", None),
            (18, b"12 3", Some(Some("12 3"))),
            (18, b"x", None),
            (19, b"system:masters", Some(Some("system:masters"))),
            (19, b"a@b", None),
            (20, b"j\xfcrgen", Some(Some("jürgen"))),
            (22, b"a@b", Some(Some("a@b"))),
            (22, b"\xff", None),
            (30, b"\0o\0k", Some(Some("ok"))),
            (30, b"\0o\0k\0\0", Some(Some("ok"))),
            (30, b"\0o\0", None),
            (30, b"\xd8\0", None),
            (28, b"\0\0\0o", Some(None)),
            (4, b"x", Some(None)),
        ] {
            let found = string(tag, data);
            assert_eq!(found, expected.map(|text| text.map(str::to_owned)), "{tag} {data:?}");
        }
    }

    #[test]
    fn a_request_says_which_names_it_wants_beside_its_subject() {
        // Made by openssl: two names of hosts, two addresses, a mail address and a URI.
        let der = "MIIBGTCBwAIBADANMQswCQYDVQQDDAJtZTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABAQElrDjsmOLb+dY\
             UfveD4bI2tE7MGg3xIh4uek1Jsfh0FucQaFHNLANDAeIm8kcuzptMUM5fvXvOXgQVFvtpUKgUTBPBgkqhkiG\
             9w0BCQ4xQjBAMD4GA1UdEQQ3MDWCA2EuYoIDYy5khwQBAgMEhxD9AAAAAAAAAAAAAAAAAAABgQN4QHmGDHNw\
             aWZmZTovL2EvYjAKBggqhkjOPQQDAgNIADBFAiArie3xq589/9CoLwxEsmMPa3deWgMcw2KG2cou4FhmPQIh\
             AOIVlliHsxp8238+h0PHJ0HOaC3jTDcW6ZbFT3Mg2qW9";
        let request = request(&STANDARD.decode(der).unwrap()).ok().unwrap();
        let names = request.alternative_names();
        assert_eq!(names.dns_names, ["a.b", "c.d"]);
        assert_eq!(names.emails, ["x@y"]);
        assert_eq!(names.uris, ["spiffe://a/b"]);
        let addresses: Vec<String> = names.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["1.2.3.4", "fd00::1"]);
    }
}
