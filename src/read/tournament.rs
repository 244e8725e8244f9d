//! Which of a merge's inputs is first: a tournament, of which only the winner's matches are played again.

use crate::comparator::{Order, common_prefix};
use crate::read::bounded::Input;
use crate::read::ranking::{Ranking, Way};

/// A tournament of a merge's inputs, in which each plays against those next to it for who is first on the way.
#[derive(Debug, Clone)]
pub(super) struct Tournament {
    /// The player that won comes first. The others are the losers of each match: that at place `i` was played by the winners of
    /// the matches at `2i` and `2i + 1`, or by players themselves, of which that of input `i` begins at place `tree.len() + i`.
    tree: Vec<Player>,
    /// The bits of a player that are the number of its input.
    input_bits: u64,
    ranking: Ranking,
    /// How many keys were compared since they were last ranked.
    ties: usize,
}

/// An input in the tournament, with a number of its key that orders as the keys do on the [`Way`], as far as it tells: the key's
/// rank without its lowest bits, and the number of the input in their place. A match compares two integers then, and its
/// outcome is their minimum and maximum. An input that is on no entry has the largest rank.
type Player = u64;

/// How inputs with the same key follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ties {
    /// In the order in which they were given, or on the way back in the reverse order.
    AsGiven,
    /// On the way back, too, in the order in which they were given: the first is shown, and the others are passed over.
    FirstWins,
}

/// Keys are ranked anew after so many comparisons of keys for each input.
const MOST_TIES: usize = 4;

#[expect(
    clippy::indexing_slicing,
    reason = "players name inputs, and places are below their number"
)]
impl Tournament {
    /// A tournament of inputs whose keys are in `order`.
    pub(super) fn of(order: &Order) -> Tournament {
        Tournament {
            tree: Vec::new(),
            input_bits: 0,
            ranking: Ranking::of(order),
            ties: 0,
        }
    }

    /// The order of the keys.
    pub(super) fn order(&self) -> &Order {
        &self.ranking.order
    }

    #[inline(always)]
    fn input(&self, player: Player) -> usize {
        (player & self.input_bits) as usize
    }

    #[inline(always)]
    fn player(&self, rank: u64, input: usize) -> Player {
        rank & !self.input_bits | input as u64
    }

    /// Whether the numbers of two players do not tell which of their keys is first.
    #[inline(always)]
    fn is_tie(&self, a: Player, b: Player) -> bool {
        (a ^ b) <= self.input_bits
    }

    /// Plays all matches of one input or more. Returns the input that has won.
    pub(super) fn play(&mut self, inputs: &[Input], way: Way, ties: Ties) -> usize {
        self.input_bits = (inputs.len() as u64).next_power_of_two() - 1;
        self.tree.clear();
        self.tree.extend(0..inputs.len() as u64);
        self.rank_anew(inputs, way);
        let players = self.tree.clone();
        self.tree[0] = self.play_at(1, &players, inputs, way, ties);
        self.input(self.tree[0])
    }

    /// Plays the match at `place`, after those below it. Returns the winner.
    fn play_at(
        &mut self,
        place: usize,
        players: &[Player],
        inputs: &[Input],
        way: Way,
        ties: Ties,
    ) -> Player {
        if let Some(input) = place.checked_sub(players.len()) {
            return players[input];
        }
        let a = self.play_at(2 * place, players, inputs, way, ties);
        let b = self.play_at(2 * place + 1, players, inputs, way, ties);
        let a_wins = if self.is_tie(a, b) {
            self.is_before_by_key(a, b, inputs, way, ties)
        } else {
            a < b
        };
        let (winner, loser) = if a_wins { (a, b) } else { (b, a) };
        self.tree[place] = loser;
        winner
    }

    /// Plays the winner's matches anew, after a step of its input, which ended on an entry if `moved`. Returns the input that
    /// has won now.
    #[inline(always)]
    pub(super) fn play_again(
        &mut self,
        inputs: &[Input],
        moved: bool,
        way: Way,
        ties: Ties,
    ) -> usize {
        let mut winner = self.tree[0];
        let input = self.input(winner);
        let cursor = &inputs[input].cursor;
        let next = self.ranking.rank(cursor.key(), way);
        winner = match next {
            _ if !moved => self.player(u64::MAX, input),
            Some(rank) if self.ties <= MOST_TIES * inputs.len() => self.player(rank, input),
            _ => {
                self.rank_anew(inputs, way);
                self.tree[0]
            }
        };
        let mut place = (self.tree.len() + input) / 2;
        while place > 0 {
            let other = self.tree[place];
            let loser;
            (winner, loser) = if self.is_tie(other, winner) {
                self.ties += 1;
                if self.is_before_by_key(other, winner, inputs, way, ties) {
                    (other, winner)
                } else {
                    (winner, other)
                }
            } else {
                (winner.min(other), winner.max(other))
            };
            self.tree[place] = loser;
            place /= 2;
        }
        self.tree[0] = winner;
        self.input(winner)
    }

    /// Whether another input may have the same key as the winner. It would have lost to that, or to another such input.
    #[inline]
    pub(super) fn has_equal_rank(&self) -> bool {
        let winner = self.tree[0];
        let mut place = (self.tree.len() + self.input(winner)) / 2;
        while place > 0 {
            if self.is_tie(self.tree[place], winner) {
                return true;
            }
            place /= 2;
        }
        false
    }

    /// Ranks the keys by the eight bytes after those that all of them share.
    #[cold]
    fn rank_anew(&mut self, inputs: &[Input], way: Way) {
        let keys = inputs.iter().filter(|input| input.is_on_entry());
        let parts = keys.map(|input| self.ranking.part(input.key()));
        let shared = parts.reduce(|a, b| &a[..common_prefix(a, b)]);
        let shared = shared.unwrap_or(&[]).to_vec();
        self.ranking.share(shared);
        for i in 0..self.tree.len() {
            let number = self.input(self.tree[i]);
            let input = &inputs[number];
            let rank = if input.is_on_entry() {
                self.ranking.rank(input.key(), way).unwrap_or(0)
            } else {
                u64::MAX
            };
            self.tree[i] = self.player(rank, number);
        }
        self.ties = 0;
    }

    /// Whether the first of two players that are a tie comes before the second on the way.
    #[cold]
    #[inline(never)]
    fn is_before_by_key(
        &self,
        a: Player,
        b: Player,
        inputs: &[Input],
        way: Way,
        ties: Ties,
    ) -> bool {
        let (a, b) = (self.input(a), self.input(b));
        let (input_a, input_b) = (&inputs[a], &inputs[b]);
        if !(input_a.is_on_entry() && input_b.is_on_entry()) {
            return input_a.is_on_entry();
        }
        let by_key = self.order().compare(input_a.key(), input_b.key());
        let order = match (way, ties) {
            (Way::Forward, _) => by_key.then(a.cmp(&b)),
            (Way::Back, Ties::FirstWins) => by_key.reverse().then(a.cmp(&b)),
            (Way::Back, Ties::AsGiven) => by_key.then(a.cmp(&b)).reverse(),
        };
        order.is_lt()
    }
}
