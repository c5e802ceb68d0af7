//! Certificates and requests for them, as far as rules look into them.
//!
//! What is malformed is told in the words of Go's `crypto/x509`, as far as its outermost layers go: a
//! client sees those. Signatures are checked where the algorithm is one of RSA from 2048 bits, ECDSA on
//! P-256 and P-384, and Ed25519; of others nothing is known, and nothing is said.
use x509_parser::asn1_rs::FromDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::error::X509Error;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

pub struct Certificate {
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

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum KeyKind {
    Ed25519,
    /// By the name that Go has for its curve.
    Elliptic(&'static str),
    /// With so many bits.
    Rsa(usize),
    Other,
}

pub struct Request {
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
    Ok(Request { key, forged })
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
