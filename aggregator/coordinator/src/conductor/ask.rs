//! The next exchange of a round: asks the strategy, and forms the task of every device.

use common::{
    DeviceId, ExchangeId, Tier,
    brief::{Brief, Objective, Product},
    message::{Alone, Task},
    rng,
    wire::crc32,
};
use strategies::{
    combine::{direction, weighted_mean},
    error::CombineError,
    guard::ScaledUpdates,
    strategy::{Ask, Exchange, Kind},
};

use super::{Conductor, Deliveries, OpenRound, Reading};
use crate::{
    announcement::{Announcement, AskedDevice},
    published::publish,
    record::DeviceInTier,
};

/// A strategy that asks for more exchanges in a round never ends it.
const MAX_EXCHANGES: usize = 8;

impl Conductor {
    /// `None`: the round can be combined.
    pub(super) fn next_exchange<D: Deliveries>(
        &mut self,
        lr: f32,
        deliveries: &mut D,
    ) -> Result<Option<Announcement>, CombineError<D::Error>> {
        let Some(open) = self.round.as_ref().filter(|open| open.record.exchanges.len() < MAX_EXCHANGES)
        else {
            return Ok(None);
        };
        let (round, made) = (open.record.round, &open.made);
        let complete: Vec<&DeviceInTier> = complete(open).collect();
        let names: Vec<_> = complete.iter().map(|selected| selected.device.clone()).collect();
        let Some(ask) = self.run.method.strategy.next(made, &names).filter(|_| !complete.is_empty()) else {
            return Ok(None);
        };
        let asked = complete.into_iter().filter_map(|DeviceInTier { device, tier }| {
            let task = self.task(&ask, device, *tier, made, round, lr)?;
            Some(AskedDevice { device: device.clone(), tier: *tier, task })
        });
        let asked = asked.collect();
        let of = |kind: Kind| made.iter().rposition(|exchange| exchange.kind == kind);
        let wanted = match &ask {
            Ask::Train { guide: Some(weights) } => of(Kind::Gradients).map(|at| (at, Some(weights))),
            Ask::Try { .. } => of(Kind::Train).map(|at| (at, None)),
            _ => None,
        };
        let guide = match wanted {
            Some((at, weights)) => {
                let (cohort, strategy) = (&made[at].cohort, &*self.run.method.strategy);
                let asked = ExchangeId { round, exchange: at as u8 };
                let read = deliveries.read(asked, Reading::Past).map_err(CombineError::Read)?;
                let mut updates = ScaledUpdates::new(read, &open.findings[at].inspection.scales);
                let vector = match weights {
                    Some(weights) => weighted_mean(strategy, weights, cohort, &mut updates)?,
                    None => direction(strategy, cohort, &mut updates)?,
                };
                let vector: Vec<f32> = vector.iter().map(|&value| value as f32).collect();
                publish(&self.run.model, &vector, &self.run.settings.down)
            }
            None => vec![],
        };
        let id = ExchangeId { round, exchange: made.len() as u8 };
        Ok(Some(Announcement { id, kind: ask.kind(), lr, asked, guide }))
    }

    /// The task of a device; `None` if it is not asked.
    fn task(
        &self,
        ask: &Ask,
        device: &DeviceId,
        tier: Tier,
        made: &[Exchange],
        round: u32,
        lr: f32,
    ) -> Option<Task> {
        let seed = device_seed(self.run.settings.seed, round, device);
        let codec = self.run.settings.up_codec(tier);
        let mut brief = Brief { lr, seed, codec, validate: false, ..self.run.settings.brief.clone() };
        self.run.method.brief(device, made, &mut brief);
        Some(match ask {
            Ask::Alone { task, devices } => {
                if !devices.contains(device) {
                    return None;
                }
                let (epochs, objective) = (task.brief.epochs, Objective::default());
                Task::Alone(Alone { brief: Brief { epochs, objective, ..brief }, ..task.clone() })
            }
            Ask::Losses => Task::Evaluate(brief.groups),
            Ask::Gradients => Task::Train(Brief {
                product: Product::Gradient,
                objective: Objective { align: 0.0, ..brief.objective },
                personal: None,
                loss_after: false,
                validate: false,
                ..brief
            }),
            Ask::Train { .. } => Task::Train(Brief { validate: self.run.settings.validate, ..brief }),
            Ask::Try { steps } => Task::Try(steps.iter().map(|&step| step as f32).collect()),
        })
    }
}

/// The devices that have delivered everything they were asked for so far.
fn complete(open: &OpenRound) -> impl Iterator<Item = &DeviceInTier> {
    let failed = |device: &DeviceId| {
        let asked = open.record.exchanges.iter().zip(&open.findings);
        let mut asked = asked.filter(|(exchange, _)| exchange.asked.binary_search(device).is_ok());
        asked.any(|(_, findings)| findings.devices.binary_search(device).is_err())
    };
    open.record.selected.iter().filter(move |selected| !failed(&selected.device))
}

/// Sample order differs between devices and rounds and follows from the run's seed alone.
fn device_seed(seed: u64, round: u32, device: &DeviceId) -> u64 {
    let name = u64::from(crc32(device.as_str().as_bytes()));
    rng::derive(rng::derive(seed, u64::from(round)), name)
}
