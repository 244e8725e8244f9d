//! Decoding what records hold: bytes that may say anything.

use std::fmt;

/// What is wrong in a record, whose checksums are right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defect {
    /// Offset within the record's payload.
    pub offset: usize,
    /// What a sound record would have there.
    pub expected: String,
    /// What is there.
    pub found: String,
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (offset, found) = (self.offset, &self.found);
        write!(f, "byte {offset} of the record: ")?;
        write!(f, "expected {}, found {found}", self.expected)
    }
}

impl std::error::Error for Defect {}

/// What is left of a payload.
#[derive(Debug, Clone)]
pub(crate) struct Decoder<'a> {
    rest: &'a [u8],
    len: usize,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(payload: &'a [u8]) -> Decoder<'a> {
        let len = payload.len();
        Decoder { rest: payload, len }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    #[cold]
    pub(crate) fn defect(&self, expected: impl Into<String>, found: impl Into<String>) -> Defect {
        Defect {
            offset: self.len - self.rest.len(),
            expected: expected.into(),
            found: found.into(),
        }
    }

    pub(crate) fn bytes(&mut self, len: u64, what: &str) -> Result<&'a [u8], Defect> {
        let split = usize::try_from(len).ok();
        let Some((bytes, rest)) = split.and_then(|len| self.rest.split_at_checked(len)) else {
            let found = format!("{} bytes before its end", self.rest.len());
            return Err(self.defect(format!("{what} of {len} bytes"), found));
        };
        self.rest = rest;
        Ok(bytes)
    }

    pub(crate) fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Defect> {
        let bytes = self.bytes(N as u64, what)?;
        Ok(*bytes.first_chunk().unwrap_or(&[0; N]))
    }

    pub(crate) fn varint(&mut self, what: &str) -> Result<u64, Defect> {
        let (before, mut value) = (self.clone(), 0);
        for shift in (0..64).step_by(7) {
            let [byte] = self.array(what)?;
            let group = u64::from(byte & 0x7f);
            value |= group << shift;
            if byte < 0x80 && value >> shift == group {
                return Ok(value);
            }
        }
        Err(before.defect(format!("{what} of 64 bits"), "a longer varint"))
    }

    /// A length and as many bytes.
    pub(crate) fn string(&mut self, what: &str) -> Result<&'a [u8], Defect> {
        let len = self.varint(what)?;
        self.bytes(len, what)
    }
}
