//! The records of a log: write batches.

use leveltable::db::MAX_SEQUENCE;

use crate::decode::{Decoder, Defect};

/// A write batch: changes that take effect together.
///
/// ```text
/// fixed64 sequence of the first change, fixed32 number of changes, change*
/// change = 1 key value | 0 key          key, value = varint32 length, bytes
/// ```
#[derive(Debug, Clone)]
pub struct Batch<'a> {
    sequence: u64,
    count: u32,
    changes: Decoder<'a>,
}

/// A change of a user key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change<'a> {
    /// The change's own sequence number.
    pub sequence: u64,
    /// The key as the database's user knows it.
    pub user_key: &'a [u8],
    /// The new value; `None` for a deletion.
    pub value: Option<&'a [u8]>,
}

impl<'a> Batch<'a> {
    /// Checks all of a log record's payload.
    ///
    /// # Errors
    ///
    /// Where it is no batch of LevelDB's.
    pub fn parse(payload: &'a [u8]) -> Result<Batch<'a>, Defect> {
        let mut rest = Decoder::new(payload);
        let at_start = rest.clone();
        let sequence = u64::from_le_bytes(rest.array("a sequence number")?);
        let count = u32::from_le_bytes(rest.array("the number of changes")?);
        if sequence.saturating_add(count.into()) > MAX_SEQUENCE {
            return Err(at_start.defect("sequence numbers of 56 bits", sequence.to_string()));
        }
        let changes = rest.clone();
        let mut found = 0;
        while !rest.is_empty() {
            change(&mut rest)?;
            found += 1;
        }
        if found != u64::from(count) {
            let expected = format!("{count} changes, as the record says");
            return Err(rest.defect(expected, found.to_string()));
        }
        Ok(Batch {
            sequence,
            count,
            changes,
        })
    }

    /// The sequence number of the first change.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Number of changes.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The changes, in the order in which they take effect.
    pub fn changes(&self) -> impl Iterator<Item = Change<'a>> + use<'a> {
        let (mut rest, mut sequence) = (self.changes.clone(), self.sequence);
        std::iter::from_fn(move || {
            // All of them were read before.
            let (user_key, value) = change(&mut rest).ok()?;
            sequence += 1;
            Some(Change {
                sequence: sequence - 1,
                user_key,
                value,
            })
        })
    }
}

fn change<'a>(rest: &mut Decoder<'a>) -> Result<(&'a [u8], Option<&'a [u8]>), Defect> {
    let before = rest.clone();
    match rest.array("a change's type")? {
        [0] => Ok((rest.string("a key")?, None)),
        [1] => Ok((rest.string("a key")?, Some(rest.string("a value")?))),
        [other] => {
            let found = format!("{other}, which other engines' logs have");
            Err(before.defect("a change of type 0 or 1", found))
        }
    }
}
