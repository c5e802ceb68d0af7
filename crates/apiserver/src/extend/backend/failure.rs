//! What goes wrong between us and a server that is asked, in the words of upstream's client (Go's
//! `net/http` and `client-go/rest`): people search for them, and tests match them.
use api::status::Status;
use rustls::{CertificateError, Error as TlsError};
use std::error::Error as _;
use std::io;

pub const DEADLINE: &str = "context deadline exceeded";

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("Post {url:?}: {cause}")]
    Unreached { url: String, cause: String },
    #[error("{0}")]
    Refused(Status),
    #[error("unexpected error when reading response body. Please retry. Original error: {0}")]
    Broken(String),
    #[error("0-length response with status code: {code} and content type: {media}")]
    Empty { code: u16, media: String },
    #[error("Post {url:?}: the answer is larger than {limit} bytes")]
    TooLarge { url: String, limit: usize },
}

impl Failure {
    /// The code of a server that answered with something else than a success.
    pub fn code(&self) -> Option<u16> {
        match self {
            Failure::Refused(status) => u16::try_from(status.code).ok(),
            _ => None,
        }
    }
}

/// Why a connection did not come to be.
pub fn of_dial(address: &str, error: &io::Error) -> String {
    let cause = match error.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused".into(),
        io::ErrorKind::HostUnreachable => "connect: no route to host".into(),
        io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".into(),
        io::ErrorKind::ConnectionReset => "connect: connection reset by peer".into(),
        io::ErrorKind::TimedOut => "i/o timeout".into(),
        _ => error.to_string(),
    };
    format!("dial tcp {address}: {cause}")
}

/// Why the other end is not believed.
pub fn of_handshake(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>());
    let Some(inner) = inner else {
        return match error.kind() {
            io::ErrorKind::UnexpectedEof => "EOF".into(),
            _ => error.to_string(),
        };
    };
    let cause = match inner {
        TlsError::InvalidCertificate(fault) => match fault {
            // Of an authority with the same name and another key, Go says the same.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "certificate signed by unknown authority".into()
            }
            CertificateError::NotValidForNameContext { expected, presented } => {
                let names = presented.iter().map(|name| plain(name)).collect::<Vec<_>>();
                let expected = expected.to_str();
                match names.is_empty() {
                    true => format!(
                        "certificate is not valid for any names, but wanted to match {expected}"
                    ),
                    false => {
                        format!("certificate is valid for {}, not {expected}", names.join(", "))
                    }
                }
            }
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => {
                "certificate has expired or is not yet valid".into()
            }
            other => other.to_string(),
        },
        TlsError::InvalidMessage(_) => {
            return "tls: first record does not look like a TLS handshake".into();
        }
        other => return format!("tls: {other}"),
    };
    format!("tls: failed to verify certificate: x509: {cause}")
}

/// `DnsName("web.svc")` and `IpAddress(10.0.0.1)` without their kind.
fn plain(name: &str) -> &str {
    let inner = name.split_once('(').map_or(name, |(_, rest)| rest.trim_end_matches(')'));
    inner.trim_matches('"')
}

/// Why there was no answer on a connection.
pub fn of_exchange(error: &hyper::Error) -> String {
    if error.is_incomplete_message() || error.is_closed() || error.is_canceled() || is_cut(error) {
        return "EOF".into();
    }
    if error.is_parse() {
        return format!("net/http: HTTP/1.x transport connection broken: {error}");
    }
    error.to_string()
}

/// Why an answer that had begun did not come to its end.
pub fn of_body(error: &hyper::Error) -> String {
    match error.source() {
        _ if is_cut(error) || error.is_incomplete_message() => "unexpected EOF".into(),
        Some(cause) => cause.to_string(),
        None => error.to_string(),
    }
}

/// Whether the other end hung up without a word, which TLS tells apart from an end.
fn is_cut(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::UnexpectedEof)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_as_go_tells_them() {
        let url = "https://a.b.svc:443/x?timeout=1s".to_owned();
        let late = Failure::Unreached { url, cause: DEADLINE.into() };
        assert_eq!(
            late.to_string(),
            "Post \"https://a.b.svc:443/x?timeout=1s\": context deadline exceeded"
        );
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert_eq!(
            of_dial("10.0.0.1:443", &refused),
            "dial tcp 10.0.0.1:443: connect: connection refused"
        );
        let issuer = TlsError::InvalidCertificate(CertificateError::UnknownIssuer);
        assert_eq!(
            of_handshake(&io::Error::new(io::ErrorKind::InvalidData, issuer)),
            "tls: failed to verify certificate: x509: certificate signed by unknown authority"
        );
        assert_eq!((plain("DnsName(\"a.b\")"), plain("IpAddress(::1)")), ("a.b", "::1"));
    }
}
