//! APPROX_COUNT_DISTINCT: HyperLogLog sketches that can take values away again.
//!
//! A value is hashed; the first bits of the hash choose a register, and its rank is the position of the
//! first one among the others. The estimate is a function of each register's greatest rank alone
//! (P. Flajolet, É. Fusy, O. Gandouet, F. Meunier: HyperLogLog, 2007), here by the improved raw estimator
//! of O. Ertl (New cardinality estimation algorithms for HyperLogLog sketches, 2017, algorithm 6), which
//! needs no tables and no switch between ranges. So that a deleted value can lower a register, how many
//! values have each rank is kept: by the incremental aggregate as rows of a multiset, here in a map.
//! Where nothing is ever taken away the greatest ranks suffice. All three give the same estimate to the bit:
//! it is computed from how many registers have each greatest rank, in one order, by IEEE operations.
//!
//! Register, rank and hash are part of the stored format and never change.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::DataType;
use types::{Error, Result};
use xxhash_rust::xxh3::xxh3_64;

use super::ordered::ValueCodec;
use super::wire::{read_i64, read_length, read_unsigned, write_signed, write_unsigned};
use crate::run::add_weights;

/// The bits of the hash that choose the register.
const REGISTER_BITS: u32 = 12;
/// The standard error is 1.04 / sqrt(4096), 1.6 percent.
pub(crate) const REGISTERS: usize = 1 << REGISTER_BITS;
/// The bits that the rank is read from.
const RANK_BITS: u32 = u64::BITS - REGISTER_BITS;
/// Ranks are 1 to 53; 0 is that of an empty register.
const RANKS: usize = RANK_BITS as usize + 2;
/// The encoded register and rank.
pub(crate) const CELL_BYTES: usize = 3;

/// A register and a rank in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cell {
    pub(crate) register: u16,
    pub(crate) rank: u8,
}

impl Cell {
    /// Where a value counts, given its sort key.
    pub(crate) fn of(sort_key: &[u8]) -> Cell {
        // The seed is zero for ever.
        Cell::of_hash(xxh3_64(sort_key))
    }

    fn of_hash(hash: u64) -> Cell {
        let register = (hash >> RANK_BITS) as u16;
        // A one behind the last bit ends the search.
        let rank = (hash << REGISTER_BITS | 1 << (REGISTER_BITS - 1)).leading_zeros() as u8 + 1;
        Cell { register, rank }
    }

    /// Bytes in the order of registers, then ranks.
    pub(crate) fn encode(self) -> [u8; CELL_BYTES] {
        let [high, low] = self.register.to_be_bytes();
        [high, low, self.rank]
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Cell> {
        let &[high, low, rank] = bytes else { return Err(no_cell()) };
        Cell::checked(u16::from_be_bytes([high, low]).into(), rank.into())
    }

    fn checked(register: u128, rank: u128) -> Result<Cell> {
        match (u16::try_from(register), u8::try_from(rank)) {
            (Ok(register), Ok(rank @ 1..)) if (register as usize) < REGISTERS && (rank as usize) < RANKS => {
                Ok(Cell { register, rank })
            }
            _ => Err(no_cell()),
        }
    }
}

fn no_cell() -> Error {
    Error::corrupt("aggregate state: no register and rank of a sketch")
}

/// The registers by their greatest rank: all that an estimate depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ranks {
    /// How many registers have each rank; those that are empty are not counted.
    counts: [u16; RANKS],
}

impl Default for Ranks {
    fn default() -> Ranks {
        Ranks { counts: [0; RANKS] }
    }
}

impl Ranks {
    /// Takes a register from one greatest rank to another; 0 is an empty one.
    pub(crate) fn change(&mut self, before: u8, after: u8) -> Result<()> {
        if before > 0 {
            let count = &mut self.counts[before as usize];
            *count = count.checked_sub(1).ok_or_else(no_cell)?;
        }
        if after > 0 {
            self.counts[after as usize] += 1;
        }
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.counts.iter().all(|count| *count == 0)
    }

    pub(crate) fn write(&self, bytes: &mut Vec<u8>) {
        let n_ranks = self.counts.iter().rposition(|count| *count > 0).unwrap_or(0);
        write_unsigned(n_ranks as u128, bytes);
        for count in &self.counts[1..=n_ranks] {
            write_unsigned(u128::from(*count), bytes);
        }
    }

    pub(crate) fn read(bytes: &mut &[u8]) -> Result<Ranks> {
        let n_ranks = read_length(bytes)?;
        let mut ranks = Ranks::default();
        let mut n_registers = 0;
        for count in ranks.counts.get_mut(1..=n_ranks).ok_or_else(no_cell)? {
            let read = read_unsigned(bytes)?;
            *count = u16::try_from(read).map_err(|_| no_cell())?;
            n_registers += usize::from(*count);
        }
        if n_registers > REGISTERS { Err(no_cell()) } else { Ok(ranks) }
    }

    /// About how many different values there are.
    pub(crate) fn estimate(&self) -> i64 {
        let m = REGISTERS as f64;
        let n_filled: u32 = self.counts.iter().map(|count| u32::from(*count)).sum();
        if n_filled == 0 {
            return 0;
        }
        let n_empty = m - f64::from(n_filled);
        let mut sum = m * tau(1.0 - f64::from(self.counts[RANKS - 1]) / m);
        for count in self.counts[1..RANKS - 1].iter().rev() {
            sum = 0.5 * (sum + f64::from(*count));
        }
        sum += m * sigma(n_empty / m);
        (m * m / (2.0 * std::f64::consts::LN_2 * sum)).round() as i64
    }
}

/// x + x^2 + 2 x^4 + 4 x^8 + ..., for x below 1.
fn sigma(x: f64) -> f64 {
    let (mut power, mut factor, mut sum) = (x, 1.0, x);
    loop {
        power *= power;
        let before = sum;
        sum += power * factor;
        factor += factor;
        if sum == before {
            return sum;
        }
    }
}

/// What registers that hold the greatest rank add, for x from 0 to 1.
fn tau(x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut root, mut factor, mut sum) = (x, 1.0, 1.0 - x);
    loop {
        root = root.sqrt();
        let before = sum;
        factor *= 0.5;
        sum -= (1.0 - root) * (1.0 - root) * factor;
        if sum == before {
            return sum / 3.0;
        }
    }
}

/// The cells of the values of a column.
pub(crate) fn cells(codec: &ValueCodec, arguments: &[ArrayRef], n_rows: usize) -> Result<Vec<Cell>> {
    Ok(codec.encode(arguments, n_rows)?.iter().map(Cell::of).collect())
}

/// Sketches of many groups.
#[derive(Clone, Debug)]
pub(crate) struct Sketches {
    codec: ValueCodec,
    groups: Groups,
}

#[derive(Clone, Debug)]
enum Groups {
    /// Where nothing is ever taken away.
    Greatest(Vec<Greatest>),
    /// How many values have each rank of a register.
    Counted(Vec<BTreeMap<Cell, i64>>),
}

/// The greatest rank of each register.
#[derive(Clone, Debug)]
enum Greatest {
    /// Of the few registers that are not empty.
    Few(BTreeMap<u16, u8>),
    All(Box<[u8; REGISTERS]>),
}

/// Beyond so many registers a table of all is smaller.
const FEW_MAX: usize = 256;

impl Greatest {
    fn offer(&mut self, cell: Cell) {
        if let Greatest::Few(few) = self
            && few.len() >= FEW_MAX
        {
            let mut all = Box::new([0; REGISTERS]);
            few.iter().for_each(|(register, rank)| all[*register as usize] = *rank);
            *self = Greatest::All(all);
        }
        let rank = match self {
            Greatest::Few(few) => few.entry(cell.register).or_insert(0),
            Greatest::All(all) => &mut all[cell.register as usize],
        };
        *rank = cell.rank.max(*rank);
    }

    fn cells(&self) -> Vec<Cell> {
        match self {
            Greatest::Few(few) => {
                few.iter().map(|(register, rank)| Cell { register: *register, rank: *rank }).collect()
            }
            Greatest::All(all) => {
                let filled = all.iter().enumerate().filter(|(_, rank)| **rank > 0);
                filled.map(|(register, rank)| Cell { register: register as u16, rank: *rank }).collect()
            }
        }
    }
}

impl Sketches {
    /// Sketches that nothing is ever taken away from.
    pub(crate) fn growing(arguments: &[DataType]) -> Result<Sketches> {
        let groups = Groups::Greatest(Vec::new());
        Ok(Sketches { codec: ValueCodec::distinct(arguments)?, groups })
    }

    /// Sketches that values may be taken away from.
    pub(crate) fn counted(arguments: &[DataType]) -> Result<Sketches> {
        let groups = Groups::Counted(Vec::new());
        Ok(Sketches { codec: ValueCodec::distinct(arguments)?, groups })
    }

    pub(crate) fn n_groups(&self) -> usize {
        match &self.groups {
            Groups::Greatest(groups) => groups.len(),
            Groups::Counted(groups) => groups.len(),
        }
    }

    pub(crate) fn grow(&mut self, n_groups: usize) {
        let n_groups = n_groups.max(self.n_groups());
        match &mut self.groups {
            Groups::Greatest(groups) => groups.resize(n_groups, Greatest::Few(BTreeMap::new())),
            Groups::Counted(groups) => groups.resize(n_groups, BTreeMap::new()),
        }
    }

    pub(crate) fn update(&mut self, arguments: &[ArrayRef], weights: &[i64], groups: &[u32]) -> Result<()> {
        let cells = cells(&self.codec, arguments, groups.len())?;
        for ((cell, weight), group) in cells.into_iter().zip(weights).zip(groups) {
            if *weight != 0 {
                self.add(*group as usize, cell, *weight)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, group: usize, cell: Cell, weight: i64) -> Result<()> {
        match &mut self.groups {
            Groups::Greatest(_) if weight < 0 => Err(Error::invalid("this aggregate takes no retractions")),
            Groups::Greatest(groups) => {
                groups[group].offer(cell);
                Ok(())
            }
            Groups::Counted(groups) => {
                let known = groups[group].entry(cell).or_insert(0);
                *known = add_weights(*known, weight)?;
                if *known == 0 {
                    groups[group].remove(&cell);
                }
                Ok(())
            }
        }
    }

    pub(crate) fn merge(&mut self, group: usize, bytes: &mut &[u8]) -> Result<()> {
        let count = read_length(bytes)?;
        for _ in 0..count {
            let cell = Cell::checked(read_unsigned(bytes)?, read_unsigned(bytes)?)?;
            let weight = match self.groups {
                Groups::Greatest(_) => 1,
                Groups::Counted(_) => read_i64(bytes)?,
            };
            self.add(group, cell, weight)?;
        }
        Ok(())
    }

    pub(crate) fn write(&self, group: usize, bytes: &mut Vec<u8>) {
        let write_cell = |cell: Cell, bytes: &mut Vec<u8>| {
            write_unsigned(cell.register.into(), bytes);
            write_unsigned(cell.rank.into(), bytes);
        };
        match &self.groups {
            Groups::Greatest(groups) => {
                let cells = groups[group].cells();
                write_unsigned(cells.len() as u128, bytes);
                cells.into_iter().for_each(|cell| write_cell(cell, bytes));
            }
            Groups::Counted(groups) => {
                write_unsigned(groups[group].len() as u128, bytes);
                for (cell, weight) in &groups[group] {
                    write_cell(*cell, bytes);
                    write_signed(i128::from(*weight), bytes);
                }
            }
        }
    }

    pub(crate) fn evaluate(&self) -> Result<ArrayRef> {
        let estimates: Vec<i64> = match &self.groups {
            Groups::Greatest(groups) => {
                groups.iter().map(|group| estimate(group.cells())).collect::<Result<_>>()?
            }
            Groups::Counted(groups) => {
                if groups.iter().any(|cells| cells.values().any(|weight| *weight < 0)) {
                    return Err(Error::corrupt("approx_count_distinct lost a value that it did not have"));
                }
                groups.iter().map(|cells| estimate(cells.keys().copied())).collect::<Result<_>>()?
            }
        };
        Ok(Arc::new(Int64Array::from(estimates)))
    }

    pub(crate) fn split_first(&mut self, n_groups: usize) -> Sketches {
        fn split<T>(groups: &mut Vec<T>, n_groups: usize) -> Vec<T> {
            let rest = groups.split_off(n_groups);
            std::mem::replace(groups, rest)
        }
        let groups = match &mut self.groups {
            Groups::Greatest(groups) => Groups::Greatest(split(groups, n_groups)),
            Groups::Counted(groups) => Groups::Counted(split(groups, n_groups)),
        };
        Sketches { codec: self.codec.clone(), groups }
    }

    pub(crate) fn n_bytes(&self) -> usize {
        let of_greatest = |group: &Greatest| match group {
            Greatest::Few(few) => 24 + 8 * few.len(),
            Greatest::All(_) => 24 + REGISTERS,
        };
        match &self.groups {
            Groups::Greatest(groups) => groups.iter().map(of_greatest).sum(),
            Groups::Counted(groups) => groups.iter().map(|cells| 24 + 24 * cells.len()).sum(),
        }
    }
}

/// The estimate over cells that come in the order of registers, then ranks.
fn estimate(cells: impl IntoIterator<Item = Cell>) -> Result<i64> {
    let mut ranks = Ranks::default();
    let mut last: Option<Cell> = None;
    for cell in cells {
        let before = last.filter(|last| last.register == cell.register).map_or(0, |last| last.rank);
        ranks.change(before, cell.rank)?;
        last = Some(cell);
    }
    Ok(ranks.estimate())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_those_of_the_bits_behind_the_register() {
        let cell = |hash: u64| (Cell::of_hash(hash).register, u32::from(Cell::of_hash(hash).rank));
        assert_eq!(cell(u64::MAX), (4095, 1));
        assert_eq!(cell(1 << 51), (0, 1));
        assert_eq!(cell(7 << 52 | 1 << 50), (7, 2));
        assert_eq!(cell(1), (0, RANK_BITS));
        assert_eq!(cell(0), (0, RANK_BITS + 1));
        assert_eq!(RANK_BITS as usize + 1, RANKS - 1);
    }

    /// The bytes are stored: these cells must never be others.
    #[test]
    fn cells_are_frozen() {
        assert_eq!(Cell::of(b"").encode(), FROZEN_EMPTY);
        assert_eq!(Cell::of(&[1, 0x80, 0, 0, 0, 0, 0, 0, 7]).encode(), FROZEN_SEVEN);
        assert!(Cell::decode(&[0x10, 0, 1]).is_err(), "there is no register 4096");
        assert!(Cell::decode(&[0, 0, 0]).is_err(), "an empty register is not stored");
        assert!(Cell::decode(&[0, 0, 54]).is_err(), "no hash has so many zeros");
    }

    const FROZEN_EMPTY: [u8; 3] = [0x02, 0xd0, 2];
    const FROZEN_SEVEN: [u8; 3] = [7, 26, 2];

    #[test]
    fn full_registers_are_a_great_number_and_no_infinity() {
        let mut ranks = Ranks::default();
        for _ in 0..REGISTERS {
            ranks.change(0, RANKS as u8 - 1).unwrap();
        }
        assert!(ranks.estimate() > 1 << 60);
        let mut bytes = Vec::new();
        ranks.write(&mut bytes);
        assert_eq!(Ranks::read(&mut bytes.as_slice()).unwrap(), ranks);
    }
}
