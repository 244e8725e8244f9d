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

    pub(crate) fn bytes(&mut self, len: usize, what: &str) -> Result<&'a [u8], Defect> {
        let Some((bytes, rest)) = self.rest.split_at_checked(len) else {
            let left = self.rest.len();
            let found = format!("{left} bytes before its end");
            return Err(self.defect(format!("{what} of {len} bytes"), found));
        };
        self.rest = rest;
        Ok(bytes)
    }

    pub(crate) fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Defect> {
        let bytes = self.bytes(N, what)?;
        Ok(*bytes.first_chunk().unwrap_or(&[0; N]))
    }

    pub(crate) fn byte(&mut self, what: &str) -> Result<u8, Defect> {
        Ok(self.array::<1>(what)?[0])
    }

    pub(crate) fn varint64(&mut self, what: &str) -> Result<u64, Defect> {
        let mut value = 0;
        for (i, &byte) in self.rest.iter().enumerate().take(10) {
            let group = u64::from(byte & 0x7f);
            if i == 9 && group > 1 {
                break;
            }
            value |= group << (7 * i);
            if byte < 0x80 {
                self.rest = self.rest.get(i + 1..).unwrap_or_default();
                return Ok(value);
            }
        }
        Err(self.defect(format!("{what}, a varint"), "none"))
    }

    pub(crate) fn varint32(&mut self, what: &str) -> Result<u32, Defect> {
        let before = self.clone();
        let value = self.varint64(what)?;
        u32::try_from(value)
            .map_err(|_| before.defect(format!("{what} of 32 bits"), value.to_string()))
    }

    /// A length and as many bytes.
    pub(crate) fn string(&mut self, what: &str) -> Result<&'a [u8], Defect> {
        let len = self.varint32(what)? as usize;
        self.bytes(len, what)
    }
}
