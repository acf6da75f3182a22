//! Regions and slices: the worked example of the specification, and properties over random models
//! with nested and non-nested tiers, checked against a bitmap written down coordinate by coordinate.

#![allow(clippy::unwrap_used, reason = "tests")]

use fairtier_common::{
    AxisId, Dim, Layout, Part, TensorShape, Tier, TierSet, WidthMask,
    layout::MAX_PARTS,
    region::{RegionMap, RegionSpans},
    slice::{WrongLength, gather, scatter},
};
use proptest::prelude::*;

fn set(tiers: &[usize]) -> TierSet {
    tiers.iter().fold(TierSet::EMPTY, |set, &tier| set.with(Tier::new(tier).unwrap()))
}

fn tensor(dims: &[Dim]) -> TensorShape {
    TensorShape::new(dims).unwrap()
}

#[test]
fn worked_example_of_the_specification() {
    let hidden = Dim::units(AxisId(0));
    let tensors = [
        tensor(&[hidden, Dim::fixed(2)]),
        tensor(&[hidden]),
        tensor(&[Dim::fixed(1), hidden]),
        tensor(&[Dim::fixed(1)]),
    ];
    let full = WidthMask::full(&[3]).unwrap();
    let layout = Layout { full: &full, tensors: &tensors };
    let masks = [3, 2, 1].map(|width| full.at_widths(&[width]).unwrap());
    assert_eq!(masks.each_ref().map(|mask| layout.slice_len(mask)), [13, 9, 5]);

    let map = RegionMap::new(layout, &masks);
    let members = |wanted: TierSet| {
        let region = map.sets().iter().position(|&set| set == wanted).unwrap();
        let pieces = map.pieces(Tier::new(0).unwrap()).iter().filter(|piece| piece.region.index() == region);
        pieces.flat_map(|piece| piece.full..piece.full + piece.len).collect::<Vec<_>>()
    };
    assert_eq!(map.sets().len(), 3);
    assert_eq!(members(set(&[0, 1, 2])), [0, 1, 6, 9, 12]);
    assert_eq!(members(set(&[0, 1])), [2, 3, 7, 10]);
    assert_eq!(members(set(&[0])), [4, 5, 8, 11]);
}

#[test]
fn gates_and_flattened_channels_are_cut_block_by_block() {
    // Two gates of 2 units; then 2 channels of 3 pixels, channel-major; then 3 pixels of 2 channels.
    let axis = Some(AxisId(0));
    let tensors =
        [tensor(&[Dim::new(2, axis, 1)]), tensor(&[Dim::new(1, axis, 3)]), tensor(&[Dim::new(3, axis, 1)])];
    let full = WidthMask::full(&[2]).unwrap();
    let layout = Layout { full: &full, tensors: &tensors };
    let half = full.at_widths(&[1]).unwrap();
    let all: Vec<u32> = (0..16).collect();
    let mut slice = [0; 8];
    gather(layout, &half, &all, &mut slice).unwrap();
    assert_eq!(slice, [0, 2, 4, 5, 6, 10, 12, 14]);
    assert_eq!(
        gather(layout, &half, &all, &mut [0; 7]),
        Err(WrongLength { expected: 8, got: 7 }),
        "a buffer of the wrong length is an error"
    );
}

#[test]
fn concatenated_channels_are_cut_branch_by_branch() {
    // 2 + 3 channels of 2 pixels, channel-major; then 2 pixels of the same channels.
    let (a, b) = (Dim::units(AxisId(0)), Dim::units(AxisId(1)));
    let both = a.then(&b).unwrap();
    let tensors = [tensor(&[both.spread(2)]), tensor(&[both.repeated(2)])];
    let full = WidthMask::full(&[2, 3]).unwrap();
    let layout = Layout { full: &full, tensors: &tensors };
    let narrow = full.at_widths(&[1, 2]).unwrap();
    let all: Vec<u32> = (0..20).collect();
    let mut slice = [0; 12];
    gather(layout, &narrow, &all, &mut slice).unwrap();
    assert_eq!(slice, [0, 1, 4, 5, 6, 7, 10, 12, 13, 15, 17, 18]);
}

#[test]
fn blocks_become_parts_and_fixed_neighbours_one() {
    let units = Dim::units(AxisId(0));
    let part = |axis: Option<u8>, inner| Part { axis: axis.map(AxisId), inner };
    let mixed = Dim::new(2, None, 3).then(&Dim::fixed(1)).unwrap().then(&units.repeated(2)).unwrap();
    assert_eq!(mixed.parts(), [part(None, 7), part(Some(0), 1), part(Some(0), 1)]);
    assert_eq!(mixed.blocks(), 1);
    let none = Dim::of_parts([part(None, 0)]).unwrap();
    assert_eq!((none.parts().len(), none.then(&units)), (0, Some(units)));
    let most = units.repeated(MAX_PARTS as u32);
    assert_eq!(most.then(&Dim::fixed(1)), None);
    assert_eq!(Dim::of_parts(most.unrolled()).unwrap().parts().len(), MAX_PARTS);
}

#[derive(Clone, Debug)]
struct Model {
    full: WidthMask,
    tensors: Vec<TensorShape>,
    masks: Vec<WidthMask>,
}

impl Model {
    fn layout(&self) -> Layout<'_> {
        Layout { full: &self.full, tensors: &self.tensors }
    }

    /// Axis and unit of every index of a dimension; `None` where it is never cut.
    fn units(&self, dim: &Dim) -> Vec<Option<(usize, u32)>> {
        let mut units = Vec::new();
        for _ in 0..dim.blocks() {
            for part in dim.parts() {
                let axis = part.axis.map(|AxisId(axis)| usize::from(axis));
                let width = axis.map_or(1, |axis| self.full.widths()[axis]);
                let unit = |unit| std::iter::repeat_n(axis.map(|axis| (axis, unit)), part.inner as usize);
                units.extend((0..width).flat_map(unit));
            }
        }
        units
    }

    /// The set of every coordinate, straight from the definition.
    fn bitmap(&self) -> Vec<TierSet> {
        let mut bitmap = Vec::new();
        for tensor in &self.tensors {
            let sizes: Vec<usize> = tensor.dims.iter().map(|dim| dim.size(&self.full)).collect();
            for flat in 0..sizes.iter().product() {
                let mut rest = flat;
                let mut index = vec![0; sizes.len()];
                for (at, size) in index.iter_mut().zip(&sizes).rev() {
                    (*at, rest) = (rest % size, rest / size);
                }
                let keeps = |mask: &WidthMask| {
                    tensor.dims.iter().zip(&index).all(|(dim, &at)| match self.units(dim)[at] {
                        None => true,
                        Some((axis, unit)) => unit < mask.widths()[axis],
                    })
                };
                let tiers: Vec<usize> = (0..self.masks.len()).filter(|&m| keeps(&self.masks[m])).collect();
                bitmap.push(set(&tiers));
            }
        }
        bitmap
    }
}

fn models() -> impl Strategy<Value = Model> {
    prop::collection::vec(1u32..6, 1..4).prop_flat_map(|axes| {
        let count = axes.len() as u8;
        let part = (prop::option::of(0..count), 1u32..4);
        let part = part.prop_map(|(axis, inner)| Part { axis: axis.map(AxisId), inner });
        let dim = (1u32..3, prop::collection::vec(part, 1..4))
            .prop_map(|(blocks, parts)| Dim::of_parts(parts).unwrap().repeated(blocks));
        let tensor = prop::collection::vec(dim, 1..4).prop_map(|dims| TensorShape::new(&dims).unwrap());
        let widths: Vec<_> = axes.iter().map(|&axis| 1..=axis).collect();
        let full = WidthMask::full(&axes).unwrap();
        let whole = full.clone();
        let mask = widths.prop_map(move |widths| whole.at_widths(&widths).unwrap());
        (Just(full), prop::collection::vec(tensor, 1..4), prop::collection::vec(mask, 1..5))
            .prop_map(|(full, tensors, masks)| Model { full, tensors, masks })
    })
}

proptest! {
    #[test]
    fn spans_match_the_definition_and_are_maximal(model in models()) {
        let mut at = 0;
        let mut last = None;
        let bitmap = model.bitmap();
        for run in RegionSpans::new(model.layout(), &model.masks) {
            prop_assert_eq!(run.start, at, "ascending, disjoint and covering");
            prop_assert!(bitmap[at..at + run.len].iter().all(|&tiers| tiers == run.tiers));
            prop_assert_ne!(last.replace(run.tiers), Some(run.tiers), "longest");
            at += run.len;
        }
        prop_assert_eq!(at, bitmap.len());
        prop_assert_eq!(at, model.layout().len());
    }

    #[test]
    fn the_map_packs_every_slice(model in models()) {
        let map = RegionMap::new(model.layout(), &model.masks);
        let bitmap = model.bitmap();
        let all: Vec<f32> = (0..bitmap.len()).map(|at| at as f32).collect();
        for (number, mask) in model.masks.iter().enumerate() {
            let tier = Tier::new(number).unwrap();
            let mut slice = vec![];
            map.gather(tier, &all, &mut slice);
            let kept: Vec<f32> = (0..bitmap.len()).filter(|&at| bitmap[at].contains(tier)).map(|at| at as f32).collect();
            prop_assert_eq!(&slice, &kept);
            prop_assert_eq!(slice.len(), map.slice_len(tier));
            prop_assert_eq!(slice.len(), model.layout().slice_len(mask));
            for piece in map.pieces(tier) {
                let tiers = map.sets()[piece.region.index()];
                prop_assert!(bitmap[piece.full..piece.full + piece.len].iter().all(|&set| set == tiers));
            }
        }
    }

    #[test]
    fn scatter_undoes_gather_and_touches_nothing_else(model in models()) {
        let layout = model.layout();
        let all: Vec<u32> = (0..layout.len() as u32).collect();
        for (number, mask) in model.masks.iter().enumerate() {
            let mut slice = vec![0; layout.slice_len(mask)];
            gather(layout, mask, &all, &mut slice).unwrap();
            let mut back = vec![u32::MAX; all.len()];
            scatter(layout, mask, &slice, &mut back).unwrap();
            let tier = Tier::new(number).unwrap();
            for (at, tiers) in model.bitmap().into_iter().enumerate() {
                prop_assert_eq!(back[at], if tiers.contains(tier) { at as u32 } else { u32::MAX });
            }
        }
    }
}

#[test]
fn a_tier_takes_no_part_in_regions_that_it_does_not_train() {
    let hidden = Dim::units(AxisId(0));
    let tensors = [tensor(&[hidden, Dim::fixed(3)]), tensor(&[Dim::fixed(2), hidden])];
    let full = WidthMask::full(&[4]).unwrap();
    let layout = Layout { full: &full, tensors: &tensors };
    let masks = [4, 2].map(|width| full.at_widths(&[width]).unwrap());
    let [zero, one] = [0, 1].map(|tier| Tier::new(tier).unwrap());
    assert_eq!(RegionMap::trained(layout, &masks, &[0, 0]), RegionMap::new(layout, &masks));
    // Only the wide tier trains the first tensor; the second is shared where both hold it.
    let trained = RegionMap::trained(layout, &masks, &[0, 12]);
    assert_eq!((trained.slice_len(zero), trained.slice_len(one)), (20, 4));
    let pieces = trained.pieces(one).iter();
    let of_one =
        pieces.map(|piece| (piece.full, piece.packed, piece.len, trained.sets()[piece.region.index()]));
    assert_eq!(of_one.collect::<Vec<_>>(), [(12, 0, 2, set(&[0, 1])), (16, 2, 2, set(&[0, 1]))]);
}
