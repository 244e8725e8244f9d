//! Comparing the keys of a merge by numbers.

use crate::comparator::Order;
use crate::db::key::{user_key, user_order};
use crate::read::index::prefix_at;

/// The direction of a merge's last move. On the way forward, all other inputs stand on their first entry after the current one, on
/// the way back on their last entry before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Forward,
    Back,
}

/// Makes numbers of keys that save most comparisons of whole keys.
#[derive(Debug, Clone)]
pub(super) struct Ranking {
    pub(super) order: Order,
    keys: Ranked,
    /// The leading bytes that the inputs' keys share. The eight bytes after these make the rank.
    shared: Vec<u8>,
    /// The same as a number, if they are at most 16, and a mask of as many bytes.
    start: u128,
    mask: u128,
}

#[derive(Debug, Clone, Copy)]
enum Ranked {
    /// Keys in bytewise order.
    Keys,
    /// A database's keys, whose user keys are in bytewise order.
    UserKeys,
    /// Keys in an order of their own: all ranks are equal.
    Nothing,
}

impl Ranking {
    pub(super) fn of(order: &Order) -> Ranking {
        let keys = match (order, user_order(order)) {
            (Order::Bytewise, _) => Ranked::Keys,
            (_, Some(Order::Bytewise)) => Ranked::UserKeys,
            _ => Ranked::Nothing,
        };
        Ranking {
            order: order.clone(),
            keys,
            shared: Vec::new(),
            start: 0,
            mask: 0,
        }
    }

    /// Ranks keys that share `shared` from now on.
    pub(super) fn share(&mut self, shared: Vec<u8>) {
        let (mut start, mut mask) = ([0; 16], [0; 16]);
        for ((start, mask), &byte) in start.iter_mut().zip(&mut mask).zip(&shared) {
            (*start, *mask) = (byte, 0xff);
        }
        self.shared = shared;
        self.start = u128::from_le_bytes(start);
        self.mask = u128::from_le_bytes(mask);
    }

    /// The part of `key` that is in bytewise order.
    #[inline]
    pub(super) fn part<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        match self.keys {
            Ranked::Keys => key,
            Ranked::UserKeys => user_key(key),
            Ranked::Nothing => &[],
        }
    }

    /// The rank of `key`; `None` if it does not begin with what the others share.
    #[inline]
    pub(super) fn rank(&self, key: &[u8], way: Way) -> Option<u64> {
        let part = self.part(key);
        let begins = match part.first_chunk() {
            // Without a call: this is done for every entry.
            Some(start) if self.shared.len() <= size_of::<u128>() => {
                u128::from_le_bytes(*start) & self.mask == self.start
            }
            _ => part.starts_with(&self.shared),
        };
        if !begins {
            return None;
        }
        let rank = prefix_at(part, self.shared.len());
        Some(match way {
            Way::Forward => rank,
            Way::Back => !rank,
        })
    }
}
