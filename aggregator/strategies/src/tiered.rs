//! The global model of a run: its graph, its tiers and what each tier sends to devices.

use std::{ops::Range, sync::Arc};

use common::{
    Codec, Tier, WidthMask,
    message::Hello,
    plan::{BackwardStep, Loss, Node, Plan, PlanError, PlanInfo},
    region::RegionMap,
};
use models::{
    graph::Graph,
    plan::{
        CompiledPlan, PlanOptions,
        fit::{FitError, fit_as_asked},
    },
};

/// A tier's Plan, as devices receive it.
#[derive(Clone, PartialEq, Debug)]
pub struct TierPlan {
    /// Its sizes.
    pub info: PlanInfo,
    /// The model, then copies of nodes that run again in the backward pass.
    pub nodes: Vec<Node>,
    /// The backward pass; empty: the nodes in reverse.
    pub schedule: Vec<BackwardStep>,
}

impl TierPlan {
    fn of(plan: CompiledPlan) -> Self {
        Self { info: plan.info, nodes: plan.nodes, schedule: plan.schedule }
    }

    /// Whether a device has the memory for it.
    pub fn fits(&self, hello: &Hello) -> bool {
        self.info.arena_bytes() <= hello.budget.ram
            && self.info.flash_bytes() <= hello.budget.flash
            && self.info.nodes.max(self.info.schedule) <= hello.max_nodes
    }

    /// Whether a device's samples fit the model's inputs and outputs.
    pub fn takes(&self, hello: &Hello) -> bool {
        let labels = match self.info.loss {
            Loss::Softmax { classes } => hello.data.classes <= classes,
            Loss::Sigmoid => hello.data.classes <= 2,
            Loss::Squared => true,
        };
        hello.data.inputs == self.info.inputs && labels
    }

    /// The oldest protocol in which a device knows all operations.
    pub fn since(&self) -> u8 {
        self.nodes.iter().map(|node| node.op.since()).max().unwrap_or(0)
    }

    /// Bytes needed and bytes available, of RAM or, if that is enough, of flash.
    pub fn shortage(&self, hello: &Hello) -> (u64, u64) {
        let ram = (self.info.arena_bytes(), hello.budget.ram);
        if ram.0 > ram.1 { ram } else { (self.info.flash_bytes(), hello.budget.flash) }
    }
}

/// Why a model cannot be used with its tiers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum ModelError {
    #[error("between 1 and {max} tiers are needed, not {0}", max = common::tier::MAX_TIERS)]
    TierCount(usize),
    #[error("tier {tier}: {source}")]
    Mask { tier: usize, source: models::graph::SliceError },
    #[error("tier {tier}: {source}")]
    Plan { tier: usize, source: models::plan::CompileError },
    #[error(
        "tier {tier}: the strategy sends devices a second vector, which tiers that train their last layers only \
         have no room for, nor models with constants for each feature or channel; take another strategy, leave out \
         `last`, or scale the data instead"
    )]
    Guided { tier: usize },
    #[error("tier {tier}: its slice of {parameters} parameters is too large to send")]
    TooLarge { tier: usize, parameters: usize },
}

/// Structure of the global model; parameters are kept apart, because they change every round.
#[derive(Clone, Debug)]
pub struct TieredModel {
    /// Structure of the whole model.
    pub graph: Graph,
    /// Widths by tier, widest first.
    pub masks: Vec<WidthMask>,
    /// Plans by tier.
    pub plans: Vec<TierPlan>,
    /// What these Plans were compiled with.
    options: Vec<PlanOptions>,
    /// Which tiers train which parameters; the slices are what devices send back.
    pub regions: Arc<RegionMap>,
    /// Which tiers hold which parameters; the slices are what devices are sent. Differs only if a tier trains its last layers
    /// only.
    held: Arc<RegionMap>,
    /// Range of each layer in the flat vector, in model order: weight and bias of a layer together.
    pub layers: Vec<Range<usize>>,
}

impl TieredModel {
    /// Every tier trains all layers of its slice.
    pub fn new(graph: Graph, masks: Vec<WidthMask>, options: &PlanOptions) -> Result<Self, ModelError> {
        Self::training(graph, masks, &[], options)
    }

    /// Tier `m` trains only its last `last[m]` layers, if that is set.
    pub fn training(
        graph: Graph,
        masks: Vec<WidthMask>,
        last: &[Option<u16>],
        options: &PlanOptions,
    ) -> Result<Self, ModelError> {
        if masks.is_empty() || masks.len() > common::tier::MAX_TIERS {
            return Err(ModelError::TierCount(masks.len()));
        }
        let options: Vec<_> = (0..masks.len())
            .map(|tier| PlanOptions { last: last.get(tier).copied().flatten(), ..*options })
            .collect();
        let compile = |(tier, (mask, options)): (usize, (&WidthMask, &PlanOptions))| {
            if options.guide && (options.last.is_some() || !graph.constants().is_empty()) {
                return Err(ModelError::Guided { tier });
            }
            let plan = models::plan::compile(&graph, mask, options)
                .map_err(|source| ModelError::Plan { tier, source })?;
            let parameters = plan.info.params as usize;
            match Codec::F32.encoded_len(parameters) {
                Some(_) => Ok(TierPlan::of(plan)),
                None => Err(ModelError::TooLarge { tier, parameters }),
            }
        };
        let plans: Vec<TierPlan> =
            masks.iter().zip(&options).enumerate().map(compile).collect::<Result<_, _>>()?;
        let held = Arc::new(RegionMap::new(graph.layout(), &masks));
        let starts = plans.iter().zip(&masks).enumerate().map(|(tier, (plan, mask))| {
            first_trained(&graph, mask, plan)
                .map_err(|refused| ModelError::Plan { tier, source: refused.into() })
        });
        let starts = starts.collect::<Result<Vec<usize>, _>>()?;
        let regions = match starts.iter().all(|&start| start == 0) {
            true => held.clone(),
            false => Arc::new(RegionMap::trained(graph.layout(), &masks, &starts)),
        };
        let layers = graph.layers();
        Ok(Self { graph, masks, plans, options, regions, held, layers })
    }

    /// The Plan of a tier for a device with this much RAM, where the Plan of the tier needs more: fewer samples per pass, with
    /// gradients summed over several passes, and recomputed activations. It trains the same parameters. An error has the bytes
    /// of the smallest Plan.
    pub fn sparing(&self, tier: Tier, ram: u64) -> Result<TierPlan, u64> {
        let parts = (self.masks.get(tier.index()), self.options.get(tier.index()));
        let (Some(mask), Some(options)) = parts else { return Err(u64::MAX) };
        match fit_as_asked(&self.graph, mask, options, ram) {
            Ok(plan) => Ok(TierPlan::of(plan)),
            Err(FitError::Short(shortage)) => Err(shortage.need),
            Err(_) => Err(self.plans.get(tier.index()).map_or(u64::MAX, |plan| plan.info.arena_bytes())),
        }
    }

    /// The part of the whole model that a tier holds: constants, then parameters.
    pub fn slice(&self, tier: Tier, parameters: &[f32]) -> Vec<f32> {
        let mut slice = Vec::new();
        self.gather(tier, parameters, &mut slice);
        slice
    }

    /// The same into `slice`.
    pub fn gather(&self, tier: Tier, parameters: &[f32], slice: &mut Vec<f32>) {
        let mut packed = Vec::new();
        self.held.gather(tier, parameters, &mut packed);
        *slice = self.graph.gather_constants(&self.masks[tier.index()]);
        slice.append(&mut packed);
    }

    /// Writes the parameters of a slice to their place in a vector over the whole model; the rest is unchanged.
    pub fn spread(&self, tier: Tier, slice: &[f32], whole: &mut [f64]) {
        let slice = slice.get(self.constants(tier)..).unwrap_or_default();
        for piece in self.held.pieces(tier) {
            let to = whole.iter_mut().skip(piece.full).take(piece.len);
            to.zip(slice.iter().skip(piece.packed)).for_each(|(to, &value)| *to = value.into());
        }
    }

    /// How many numbers of a tier's slice are constants.
    fn constants(&self, tier: Tier) -> usize {
        self.graph.gather_constants(&self.masks[tier.index()]).len()
    }
}

/// Where the parameters that a tier trains begin in the whole model.
fn first_trained(graph: &Graph, mask: &WidthMask, plan: &TierPlan) -> Result<usize, PlanError> {
    let frozen = Plan::check(&plan.info, &plan.nodes, &plan.schedule)?.frozen() as usize;
    let frozen = frozen.saturating_sub(graph.gather_constants(mask).len());
    let tensors = graph.offsets(mask).into_iter().zip(graph.offsets(graph.full()));
    // A model without tensors begins at 0.
    Ok(tensors.filter(|(packed, _)| *packed <= frozen).map(|(_, full)| full).max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use common::plan::ArithmeticKind;
    use models::{
        graph::{Axes, Builder, Param, ValueId},
        zoo,
    };

    use super::*;

    /// Three inputs that are scaled, and a hidden layer of four units.
    fn scaled() -> Graph {
        let mut builder = Builder::new("scaled", "x", &[3]).unwrap();
        let (axes, std) = (Axes { first: 0, count: 1 }, vec![2.0, 4.0, 8.0]);
        let x = builder.with_constants("std", ValueId::INPUT, ArithmeticKind::Div, axes, std).unwrap();
        let hidden = builder.dense("a", x, 3, 4, Param::plain("a"), None).unwrap();
        let logits = builder.dense("b", hidden, 4, 2, Param::plain("b"), None).unwrap();
        builder.finish("y", logits, None).unwrap()
    }

    #[test]
    fn constants_are_sent_to_devices_and_are_no_parameters() {
        let graph = scaled();
        let masks = vec![graph.full().clone(), graph.full().at_rate(0.5).unwrap()];
        let model = TieredModel::new(graph.clone(), masks.clone(), &PlanOptions::train(1)).unwrap();
        let parameters: Vec<f32> = (0..20).map(|number| number as f32).collect();
        assert_eq!(model.regions.parameters(), 20);
        for (index, expected) in [(0, 20), (1, 10)] {
            let tier = Tier::new(index).unwrap();
            let slice = model.slice(tier, &parameters);
            assert_eq!(slice[..3], [2.0, 4.0, 8.0]);
            assert_eq!((slice.len(), model.regions.slice_len(tier)), (3 + expected, expected));
            assert_eq!(model.plans[index].info.params as usize, slice.len());
            let mut whole = vec![0.0; 20];
            model.spread(tier, &slice, &mut whole);
            assert_eq!(whole[0..6], [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        }
        // A second vector would have no room for them.
        let guided = PlanOptions { guide: true, ..PlanOptions::train(1) };
        assert!(matches!(
            TieredModel::new(graph.clone(), masks.clone(), &guided),
            Err(ModelError::Guided { .. })
        ));
        // The last layer alone.
        let model = TieredModel::training(graph, masks, &[None, Some(1)], &PlanOptions::train(1)).unwrap();
        let tier = Tier::new(1).unwrap();
        assert_eq!((model.slice(tier, &parameters).len(), model.regions.slice_len(tier)), (13, 4));
    }

    #[test]
    fn layers_cover_the_model_and_keep_tensors_whole() {
        for entry in zoo::ALL {
            let (graph, _) = entry.build(0);
            let (masks, full) = (vec![graph.full().clone()], graph.full().clone());
            let model = TieredModel::new(graph, masks, &PlanOptions::train(1)).unwrap();
            let mut end = 0;
            for layer in &model.layers {
                assert_eq!(layer.start, end, "{}", entry.name);
                assert!(layer.end > layer.start, "{}", entry.name);
                end = layer.end;
            }
            assert_eq!(end, model.regions.parameters(), "{}", entry.name);
            // A layer starts where a tensor does.
            let offsets = model.graph.offsets(&full);
            assert!(model.layers.iter().all(|layer| offsets.contains(&layer.start)), "{}", entry.name);
        }
    }

    #[test]
    fn weight_and_bias_are_one_layer() {
        let (graph, _) = zoo::by_name("digits-mlp").unwrap().build(0);
        let masks = vec![graph.full().clone()];
        let model = TieredModel::new(graph, masks, &PlanOptions::train(1)).unwrap();
        let names: Vec<_> = model.graph.params().iter().map(|param| param.name.as_str()).collect();
        assert_eq!(model.layers.len() * 2, names.len(), "{names:?}");
    }
}
