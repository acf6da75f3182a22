//! What the owner of a device allows.

use common::{
    brief::{Laplace, Product},
    privacy::{Policy, Secret},
};

use super::*;

const LAPLACE: Laplace = Laplace { sums: 0.0, clip_l1: 1.0, update: 2.0 };

fn owned(arena: &mut [f32], max_epsilon: f32, max_answers: Option<u32>) -> Device<'_> {
    let policy = Some(Policy { max_epsilon, max_answers });
    Device::owned(arena, Privacy { secret: Some(Secret::simulated(1)), policy })
}

/// Both speak the newest protocol.
fn join(device: &mut Device<'_>) {
    device.join();
    device.session.version = Versions::OURS.newest;
}

fn asked(task: Task) -> Assignment {
    Assignment { task, ..assignment() }
}

fn brief(privacy: Option<Laplace>) -> Brief {
    Brief { privacy, ..Brief::sgd(2, 2, 0.5, 3) }
}

/// Asks for an update with noise in this round and attempt; returns offer and bytes.
fn answer(device: &mut Device<'_>, round: u32, attempt: u16) -> (Offer, Vec<u8>) {
    assign(device, round, attempt);
    let offer = device.train();
    device.hear(&ToDevice::Fetch(Fetch { transfer: TransferId(round), offset: 0 }));
    let bytes = device.say().1;
    device.hear(&ToDevice::Receipt(Receipt { ticket: offer.ticket, refused: None }));
    device.say();
    (offer, bytes)
}

fn assign(device: &mut Device<'_>, round: u32, attempt: u16) {
    let ticket = Ticket { round, attempt, ..TICKET };
    device.hear(&ToDevice::Assignment(Assignment { ticket, ..asked(Task::Train(brief(Some(LAPLACE)))) }));
    for (number, chunk) in model_bytes().chunks(8).enumerate() {
        device.hear_chunk(number as u32 * 8, chunk);
    }
    device.say();
}

#[test]
fn a_task_with_too_little_noise_is_refused_and_the_device_continues() {
    let private = brief(Some(LAPLACE));
    for task in [
        Task::Train(brief(None)),
        Task::Train(Brief { product: Product::Gradient, ..brief(None) }),
        Task::Train(brief(Some(Laplace { update: 1.99, ..LAPLACE }))),
        Task::Evaluate(None),
    ] {
        let mut arena = [0.0; 26];
        let mut device = owned(&mut arena, 1.0, None);
        join(&mut device);
        device.session.poll_event();
        device.hear(&ToDevice::Assignment(asked(task.clone())));
        assert_eq!(device.say().0, [ToAggregator::Refusal(Code::NoiseTooWeak.into())], "{task:?}");
        let failed = Event::Failed { round: 1, code: Code::NoiseTooWeak };
        assert_eq!(device.session.poll_event(), Some(failed));
        assert!(!device.session.has_work());
        device.wait(100);
        assert_eq!(device.say().0, [ToAggregator::Ready], "it asks for the next round");
        device.hear(&ToDevice::Assignment(asked(Task::Train(private.clone()))));
        assert!(matches!(device.say().0.as_slice(), [ToAggregator::Fetch(_)]), "which it may take part in");
    }
}

#[test]
fn a_gateway_of_protocol_4_is_told_a_code_that_it_knows() {
    let mut arena = [0.0; 26];
    let mut device = owned(&mut arena, 1.0, None);
    device.session.handle_connected(LIMITS, Versions::FOUR, device.now);
    device.hear(&ToDevice::Welcome(Welcome { run: TICKET.run, tier: Tier::new(3).unwrap(), plan: PLAN }));
    let nodes = heapless::Vec::from_slice(&[NODE]).unwrap();
    let part = PlanPart { digest: 5, node: 0, step: 0, nodes, steps: heapless::Vec::new() };
    device.hear(&ToDevice::PlanPart(part));
    device.say();
    device.hear(&ToDevice::Assignment(assignment()));
    assert_eq!(device.say().0, [ToAggregator::Refusal(Code::LeftOut.into())]);
}

#[test]
fn without_a_secret_no_noise_is_drawn() {
    let mut arena = [0.0; 26];
    let mut device = Device::new(&mut arena);
    join(&mut device);
    device.hear(&ToDevice::Assignment(asked(Task::Train(brief(Some(LAPLACE))))));
    assert_eq!(device.say().0, [ToAggregator::Refusal(Code::NoiseTooWeak.into())]);
}

#[test]
fn answers_are_counted_before_they_leave_and_end_at_the_cap() {
    let mut arena = [0.0; 26];
    let mut device = owned(&mut arena, 1.0, Some(2));
    join(&mut device);
    let first = answer(&mut device, 1, 0);
    assert_eq!(device.session.spent().answers(), 1);
    // The receipt was lost, or the aggregator has rolled back: the same bytes, and the count does not change.
    let again = answer(&mut device, 1, 1);
    assert_eq!((&again.1, &again.0.scalars), (&first.1, &first.0.scalars));
    assert_eq!(device.session.spent().answers(), 1);
    let second = answer(&mut device, 2, 0);
    assert_ne!(second.1, first.1);

    while device.session.poll_event().is_some() {}
    assign(&mut device, 3, 0);
    let error = device.session.work(&device.shard, &mut Portable::plain(), device.now).unwrap_err();
    assert_eq!(error.code(), Code::PrivacySpent);
    assert_eq!(device.say().0, [ToAggregator::Refusal(Code::PrivacySpent.into())]);
    let events: Vec<_> = std::iter::from_fn(|| device.session.poll_event()).collect();
    assert!(events.contains(&Event::Failed { round: 3, code: Code::PrivacySpent }), "{events:?}");
    assert_eq!(answer(&mut device, 2, 1).1, second.1, "what was answered is answered again");

    // A driver that has stored the count passes it to the next process.
    let spent = device.session.spent().clone();
    let mut arena = [0.0; 26];
    let mut device = owned(&mut arena, 1.0, Some(2));
    device.session.resume_spent(spent);
    join(&mut device);
    assert_eq!(answer(&mut device, 2, 0).1, second.1, "the same bytes after a restart");
    assign(&mut device, 3, 0);
    assert!(device.session.work(&device.shard, &mut Portable::plain(), device.now).is_err());
}
