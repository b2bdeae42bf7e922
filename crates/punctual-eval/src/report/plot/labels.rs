//! Labels beside the ends of lines, moved apart so that none lies on another.

/// Positions as near as possible (least squares) to the wanted ones, at least `gap` apart and within `low..=high`, in the order
/// of the wanted ones. The span must have room for all.
///
/// Less `gap` for each that comes before, the positions need only not decrease: an isotonic regression, by pooling adjacent
/// violators.
pub(in crate::report) fn spread(wanted: &[f64], gap: f64, low: f64, high: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|&a, &b| wanted[a].total_cmp(&wanted[b]));
    let mut pools: Vec<(f64, usize)> = Vec::new();
    for (rank, &index) in order.iter().enumerate() {
        let mut pool = (wanted[index] - rank as f64 * gap, 1);
        while let Some(&(sum, count)) = pools.last() {
            if sum / count as f64 <= pool.0 / pool.1 as f64 {
                break;
            }
            pools.pop();
            pool = (pool.0 + sum, pool.1 + count);
        }
        pools.push(pool);
    }
    let highest = (high - gap * wanted.len().saturating_sub(1) as f64).max(low);
    let bases = pools.iter().flat_map(|&(sum, count)| std::iter::repeat_n(sum / count as f64, count));
    let mut placed = vec![0.0; wanted.len()];
    for ((rank, &index), base) in order.iter().enumerate().zip(bases) {
        placed[index] = base.clamp(low, highest) + rank as f64 * gap;
    }
    placed
}

/// How many labels a span has room for.
pub(in crate::report) fn room(gap: f64, low: f64, high: f64) -> usize {
    ((high - low) / gap).max(0.0) as usize + 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn labels_with_room_stay_and_others_part_evenly() {
        assert_eq!(spread(&[50.0, 10.0, 90.0], 14.0, 0.0, 100.0), [50.0, 10.0, 90.0]);
        assert_eq!(spread(&[50.0, 50.0], 14.0, 0.0, 100.0), [43.0, 57.0]);
        assert_eq!(spread(&[0.0, 0.0, 1.0], 14.0, 0.0, 100.0), [0.0, 14.0, 28.0]);
        assert!(spread(&[], 14.0, 0.0, 100.0).is_empty());
    }

    proptest! {
        #[test]
        fn labels_never_overlap_nor_leave(wanted in prop::collection::vec(-50.0..250.0, 0..14)) {
            let mut placed = spread(&wanted, 14.0, 0.0, 200.0);
            placed.sort_by(f64::total_cmp);
            for pair in placed.windows(2) {
                prop_assert!(pair[1] - pair[0] >= 14.0 - 1e-9);
            }
            for at in placed {
                prop_assert!((-1e-9..=200.0 + 1e-9).contains(&at));
            }
        }
    }
}
