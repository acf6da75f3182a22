//! The next exchange of a round: asks the strategy, and says what every device is told.

use common::{
    DeviceId, Tier,
    brief::{Brief, Objective, Product},
    message::{Alone, Task},
    rng,
    wire::crc32,
};
use strategies::{
    combine::{direction, weighted_mean},
    error::CombineError,
    guard::Scaled,
    strategy::{Ask, Exchange, Kind},
};

use super::{Conductor, Deliveries, Open, Reading};
use crate::{announcement::Announcement, published::publish};

/// More exchanges in a round would mean that a strategy goes in circles.
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
        let (round, number) = (open.record.number, open.made.len());
        let made = &open.made;
        let complete = complete(open);
        let names: Vec<_> = complete.iter().map(|(device, _)| device.clone()).collect();
        let Some(ask) = self.run.method.strategy.next(made, &names).filter(|_| !complete.is_empty()) else {
            return Ok(None);
        };
        let seats = complete
            .into_iter()
            .filter_map(|(device, tier)| {
                let task = self.task(&ask, (&device, tier), made, round, lr)?;
                Some((device, tier, task))
            })
            .collect();
        let of = |kind: Kind| made.iter().rposition(|exchange| exchange.kind == kind);
        let wanted = match &ask {
            Ask::Train { guide: Some(weights) } => of(Kind::Gradients).map(|at| (at, Some(weights))),
            Ask::Try { .. } => of(Kind::Train).map(|at| (at, None)),
            _ => None,
        };
        let guide = match wanted {
            Some((at, weights)) => {
                let (cohort, strategy) = (&made[at].cohort, &*self.run.method.strategy);
                let read = deliveries.read(round, at as u8, Reading::Past).map_err(CombineError::Read)?;
                let mut updates = Scaled::new(read, &open.found[at].verdict.scales);
                let vector = match weights {
                    Some(weights) => weighted_mean(strategy, weights, cohort, &mut updates)?,
                    None => direction(strategy, cohort, &mut updates)?,
                };
                let vector: Vec<f32> = vector.iter().map(|&value| value as f32).collect();
                publish(&self.run.model, &vector, &self.run.settings.down)
            }
            None => vec![],
        };
        Ok(Some(Announcement { round, number: number as u8, kind: ask.kind(), lr, seats, guide }))
    }

    /// What a device is told; `None` if it is not asked.
    fn task(
        &self,
        ask: &Ask,
        (device, tier): (&DeviceId, Tier),
        made: &[Exchange],
        round: u32,
        lr: f32,
    ) -> Option<Task> {
        let seed = device_seed(self.run.settings.seed, round, device);
        let codec = self.run.settings.up.of(tier)?;
        let mut brief = Brief { lr, seed, codec, ..self.run.settings.brief.clone() };
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
                ..brief
            }),
            Ask::Train { .. } => Task::Train(brief),
            Ask::Try { steps } => Task::Try(steps.iter().map(|&step| step as f32).collect()),
        })
    }
}

/// Who has delivered everything asked for so far.
fn complete(open: &Open) -> Vec<(DeviceId, Tier)> {
    let failed = |device: &DeviceId| {
        let asked = open.record.exchanges.iter().zip(&open.found);
        let mut asked = asked.filter(|(exchange, _)| exchange.asked.binary_search(device).is_ok());
        asked.any(|(_, found)| found.devices.binary_search(device).is_err())
    };
    let selected = open.record.selected.iter().filter(|selected| !failed(&selected.device));
    selected.map(|selected| (selected.device.clone(), selected.tier)).collect()
}

/// Sample order differs between devices and rounds and follows from the run's seed alone.
fn device_seed(seed: u64, round: u32, device: &DeviceId) -> u64 {
    let name = u64::from(crc32(device.as_str().as_bytes()));
    rng::derive(rng::derive(seed, u64::from(round)), name)
}
