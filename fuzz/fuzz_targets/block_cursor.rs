//! The cursor of a block under any sequence of moves, against the list of the block's entries.

#![no_main]

use std::cmp::Ordering;

use arbitrary::{Arbitrary, Result, Unstructured};
use bytes::Bytes;
use leveltable::BytewiseComparator;
use leveltable::fuzzing::{self, Block, BlockCursor, SearchPart};
use leveltable::sister_crates::Order;
use leveltable_fuzz::naive;
use leveltable_fuzz::tables::{Entries, KeyOrder};
use libfuzzer_sys::fuzz_target;

#[derive(Debug)]
struct Input {
    order: KeyOrder,
    block: Vec<u8>,
    moves: Vec<Move>,
}

#[derive(Debug, Arbitrary)]
enum Move {
    Next,
    Prev,
    Rewind,
    BehindLast,
    Seek(Key),
    Find(Key),
}

/// A key to look for: one of the block's, one beside it, or any other.
#[derive(Debug, Arbitrary)]
enum Key {
    Present(u8),
    Longer(u8, u8),
    Shorter(u8),
    Any(Vec<u8>),
}

/// A byte edit of a block.
#[derive(Debug, Arbitrary)]
struct Edit {
    at: u16,
    byte: u8,
}

impl Arbitrary<'_> for Input {
    fn arbitrary(u: &mut Unstructured) -> Result<Input> {
        let order = u.arbitrary()?;
        let moves = u.arbitrary()?;
        let block = match u.arbitrary::<u8>()? % 4 {
            0 => u.bytes(u.len())?.to_vec(),
            kind => {
                let edits: Vec<Edit> = match kind {
                    1 => u.arbitrary()?,
                    _ => Vec::new(),
                };
                let mut block = valid_block(u, order)?;
                for Edit { at, byte } in edits {
                    let at = usize::from(at) % block.len();
                    block[at] = byte;
                }
                block
            }
        };
        Ok(Input {
            order,
            block,
            moves,
        })
    }
}

/// A block whose writer shares as much of each key, and restarts as often, as it pleases.
fn valid_block(u: &mut Unstructured, order: KeyOrder) -> Result<Vec<u8>> {
    let entries = Entries::arbitrary(u)?.in_order(order);
    let how: Vec<(usize, bool)> = entries
        .iter()
        .map(|_| {
            let how: u8 = u.arbitrary()?;
            let most_shared = match how & 7 {
                7 => usize::MAX,
                few => few.into(),
            };
            Ok((most_shared, how & 0x18 == 0))
        })
        .collect::<Result<_>>()?;
    let entries = entries.iter().zip(how);
    Ok(naive::encode_block(entries.map(
        |((key, value), (most_shared, restart))| (&key[..], &value[..], most_shared, restart),
    )))
}

/// Where the model stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    BeforeFirst,
    On(usize),
    AfterLast,
    /// A move failed, or ended where the model cannot follow.
    Unknown,
}

fuzz_target!(|input: Input| {
    let most = input.block.len();
    let model = naive::Block::decode(&input.block, most);
    let order = match input.order {
        KeyOrder::Bytewise => Order::of(BytewiseComparator),
        other => Order::of(other),
    };
    let block = Block::parse(Bytes::from(input.block));
    let block = block.and_then(|block| block.check_restarts().map(|()| block));
    let Ok(block) = block else {
        assert!(!model.is_some_and(|block| block.restarts_are_sound));
        return;
    };
    let mut cursor = BlockCursor::new(block);
    match model {
        Some(block) if block.restarts_are_sound => {
            follow(&mut cursor, &order, &block, input.order, &input.moves)
        }
        model => wander(&mut cursor, &order, model.as_ref(), &input.moves, most),
    }
});

impl Key {
    fn bytes(&self, block: Option<&naive::Block>) -> Vec<u8> {
        let entry = |i: &u8| {
            let entries = &block?.entries;
            let (key, _) = entries.get(usize::from(*i) % entries.len().max(1))?;
            Some(key.clone())
        };
        match self {
            Key::Present(i) => entry(i).unwrap_or_default(),
            Key::Longer(i, byte) => {
                let mut key = entry(i).unwrap_or_default();
                key.push(*byte);
                key
            }
            Key::Shorter(i) => {
                let mut key = entry(i).unwrap_or_default();
                key.pop();
                key
            }
            Key::Any(key) => key.clone(),
        }
    }
}

/// A block as a writer writes it, its keys perhaps out of order: every move must end where the model does.
fn follow(
    cursor: &mut BlockCursor<Bytes>,
    key_order: &Order,
    block: &naive::Block,
    order: KeyOrder,
    moves: &[Move],
) {
    let entries = &block.entries;
    let ascends = block.ascends(order.compare());
    let mut place = Place::BeforeFirst;
    for step in moves {
        let moved = match step {
            Move::Next => {
                place = match place {
                    Place::BeforeFirst => on(0, entries.len()),
                    Place::On(i) => on(i + 1, entries.len()),
                    other => other,
                };
                cursor.next().expect("a sound block")
            }
            Move::Prev => {
                place = match place {
                    Place::AfterLast => before(entries.len()),
                    Place::On(i) => before(i),
                    other => other,
                };
                cursor.prev().expect("a sound block")
            }
            Move::Rewind => {
                place = Place::BeforeFirst;
                cursor.move_before_first();
                false
            }
            Move::BehindLast => {
                place = Place::AfterLast;
                cursor.move_past_last();
                false
            }
            Move::Seek(key) => {
                let key = key.bytes(Some(block));
                let moved = cursor
                    .seek(&key, key_order, SearchPart::default())
                    .expect("a sound block");
                place = match (ascends, moved) {
                    (true, _) => {
                        let is_before = |(k, _): &(Vec<u8>, _)| order.compare()(k, &key).is_lt();
                        on(entries.partition_point(is_before), entries.len())
                    }
                    // It is somewhere on an entry that is not before the key.
                    (false, true) => {
                        assert_ne!(order.compare()(cursor.key(), &key), Ordering::Less);
                        let here =
                            |(k, v): &(Vec<u8>, Vec<u8>)| k == cursor.key() && v == cursor.value();
                        assert!(entries.iter().any(here));
                        Place::Unknown
                    }
                    (false, false) => Place::AfterLast,
                };
                moved
            }
            Move::Find(key) => {
                let key = key.bytes(Some(block));
                check_find(cursor, key_order, &key, ascends.then_some(&entries[..]));
                continue;
            }
        };
        match place {
            Place::On(i) => {
                assert!(moved, "on entry {i} after {step:?}");
                let (key, value) = &entries[i];
                assert_eq!((cursor.key(), cursor.value()), (&key[..], &value[..]));
            }
            Place::BeforeFirst | Place::AfterLast => assert!(!moved, "on no entry after {step:?}"),
            Place::Unknown => {}
        }
    }
}

fn on(i: usize, len: usize) -> Place {
    match i < len {
        true => Place::On(i),
        false => Place::AfterLast,
    }
}

fn before(i: usize) -> Place {
    i.checked_sub(1).map_or(Place::BeforeFirst, Place::On)
}

/// A lookup answers as the model does, if its keys ascend.
fn check_find(
    cursor: &BlockCursor<Bytes>,
    order: &Order,
    key: &[u8],
    model: Option<&[naive::Entry]>,
) {
    for part in SearchPart::all() {
        check_find_in(cursor, order, key, part, model);
    }
}

fn check_find_in(
    cursor: &BlockCursor<Bytes>,
    order: &Order,
    key: &[u8],
    part: SearchPart,
    model: Option<&[naive::Entry]>,
) {
    let found = find(cursor, order, key, part);
    if let Some(entries) = model {
        let expected = entries.iter().find(|(k, _)| k == key).map(|(_, v)| &v[..]);
        assert_eq!(found.as_ref().unwrap().as_deref(), expected);
    }
}

/// The value of `key` by a lookup, wherever the cursor stands. An error as its text.
fn find(
    cursor: &BlockCursor<Bytes>,
    order: &Order,
    key: &[u8],
    part: SearchPart,
) -> std::result::Result<Option<Bytes>, String> {
    let found = fuzzing::find(&cursor.block, key, order, part);
    let found = found.map_err(|defect| format!("{defect:?}"))?;
    Ok(found.map(|value| cursor.block.data.slice(value)))
}

/// Any other block: moves end, and walks have no more steps than the block has room for entries.
fn wander(
    cursor: &mut BlockCursor<Bytes>,
    order: &Order,
    model: Option<&naive::Block>,
    moves: &[Move],
    len: usize,
) {
    for step in moves {
        let moved = match step {
            Move::Next => cursor.next(),
            Move::Prev => cursor.prev(),
            Move::Rewind => {
                cursor.move_before_first();
                continue;
            }
            Move::BehindLast => {
                cursor.move_past_last();
                continue;
            }
            Move::Seek(key) | Move::Find(key) => {
                let key = key.bytes(model);
                let found = find(cursor, order, &key, SearchPart::default());
                let moved = cursor.seek(&key, order, SearchPart::default());
                match (&found, &moved) {
                    (Ok(Some(value)), _) => {
                        assert!(matches!(moved, Ok(true)), "{moved:?}");
                        assert_eq!((cursor.key(), cursor.value()), (&key[..], &value[..]));
                    }
                    (Ok(None), Ok(true)) => assert_ne!(cursor.key(), key),
                    (Ok(None), Ok(false)) => {}
                    _ => assert_eq!(found.is_err(), moved.is_err()),
                }
                moved
            }
        };
        if moved.is_err() {
            cursor.move_before_first();
        }
    }
    cursor.move_before_first();
    let mut steps = 0;
    let end = loop {
        match cursor.next() {
            Ok(true) => {
                if let Some(block) = model {
                    let (key, value) = &block.entries[steps];
                    assert_eq!((cursor.key(), cursor.value()), (&key[..], &value[..]));
                }
                steps += 1;
            }
            end => break end,
        }
    };
    assert!(3 * steps <= len);
    assert_eq!(
        end.is_ok(),
        model.is_some(),
        "both read to the end, or neither"
    );
    cursor.move_past_last();
    let mut back = 0;
    while let Ok(true) = cursor.prev() {
        back += 1;
    }
    assert!(3 * back <= len);
}
