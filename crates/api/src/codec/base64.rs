//! Base64 as Go reads it: line breaks are passed over, and spare bits at the end may be anything.
use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, PAD};

const CONFIG: GeneralPurposeConfig = PAD.with_decode_allow_trailing_bits(true);
const ENGINE: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, CONFIG);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("illegal base64 data at input byte {0}")]
pub(super) struct CorruptInput(usize);

pub(super) fn encode(bytes: &[u8]) -> String {
    ENGINE.encode(bytes)
}

pub(super) fn decode(text: &[u8]) -> Result<Vec<u8>, CorruptInput> {
    match ENGINE.decode(text) {
        Ok(bytes) => Ok(bytes),
        Err(_) => decode_lines(text),
    }
}

/// With line breaks, or to find what is wrong where.
fn decode_lines(text: &[u8]) -> Result<Vec<u8>, CorruptInput> {
    let is_break = |byte: &u8| matches!(byte, b'\n' | b'\r');
    let next = |at: usize| (at..text.len()).find(|at| !is_break(&text[*at]));
    let mut joined = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(here) = next(at) {
        at = here + 1;
        match text[here] {
            b'=' if joined.len() % 4 < 2 => return Err(CorruptInput(here)),
            b'=' => {
                joined.push(b'=');
                if joined.len() % 4 == 3 {
                    let second = next(at).ok_or(CorruptInput(text.len()))?;
                    if text[second] != b'=' {
                        return Err(CorruptInput(second - 1));
                    }
                    joined.push(b'=');
                    at = second + 1;
                }
                if let Some(garbage) = next(at) {
                    return Err(CorruptInput(garbage));
                }
                break;
            }
            byte if byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/') => {
                joined.push(byte);
            }
            _ => return Err(CorruptInput(here)),
        }
    }
    // Go counts back from the end without regard to line breaks.
    let short = CorruptInput(text.len() - joined.len() % 4);
    ENGINE.decode(&joined).map_err(|_| short)
}
