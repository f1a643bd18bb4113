//! Which faults a seed means: places in one endless cycle of all faults.
//!
//! The cycle is the same for everybody, so that any run of seeds in a row meets every fault equally
//! often; only the order within a seed is the seed's own.

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;

/// Decides the order of the cycle, once and for all.
const CYCLE: u64 = 0xBE1F;

/// The faults of a seed: `count` of them, from the places `seed * count ..` of the cycle of `names`.
pub fn draw<'a>(names: &[&'a str], seed: u64, count: usize) -> Vec<&'a str> {
    if names.is_empty() {
        return Vec::new();
    }
    let mut cycle = names.to_vec();
    // The order in which the program lists them means nothing.
    cycle.sort_unstable();
    cycle.shuffle(&mut StdRng::seed_from_u64(CYCLE));
    let length = cycle.len() as u128;
    let first = u128::from(seed) * count as u128;
    let mut drawn: Vec<&str> =
        (first..first + count as u128).map(|place| cycle[(place % length) as usize]).collect();
    drawn.shuffle(&mut StdRng::seed_from_u64(seed));
    drawn
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::drill::faults;

    fn names() -> Vec<&'static str> {
        faults().iter().map(|fault| fault.name()).collect()
    }

    #[test]
    fn twenty_seeds_of_eight_strike_every_fault_three_times_wherever_they_begin() {
        let names = names();
        for begin in [0, 1, 7, 1_764_540_000, u64::MAX / 16] {
            let mut times: BTreeMap<&str, usize> = names.iter().map(|&name| (name, 0)).collect();
            for seed in begin..begin + 20 {
                for name in draw(&names, seed, 8) {
                    *times.get_mut(name).expect("a known name") += 1;
                }
            }
            let few: Vec<_> = times.iter().filter(|(_, times)| **times < 3).collect();
            assert!(few.is_empty(), "from {begin}: {few:?} of {} faults", names.len());
        }
    }

    #[test]
    fn a_seed_means_the_same_faults_however_they_are_listed() {
        let names = names();
        let backwards: Vec<_> = names.iter().rev().copied().collect();
        assert_eq!(draw(&names, 17, 8), draw(&backwards, 17, 8));
        assert_ne!(draw(&names, 17, 8), draw(&names, 18, 8));
        assert_eq!(draw(&names, 3, 0), [""; 0]);
        assert_eq!(draw(&[], 3, 8), [""; 0]);
        assert_eq!(draw(&["one"], u64::MAX, 3), ["one"; 3]);
    }
}
