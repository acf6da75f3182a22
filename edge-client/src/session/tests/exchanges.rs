//! Rounds of several exchanges: guides, vectors that are not fetched again, and private state.

use common::{
    brief::{Objective, Product},
    message::{Alone, Scalars},
};

use super::*;

/// Weights, anchor, guide, gradients, personal model.
const WIDE: PlanInfo = PlanInfo {
    segments: Segments {
        anchor: Some(6),
        guide: Some(12),
        grads: Some(18),
        residual: None,
        moment1: None,
        moment2: None,
        personal: Some(24),
        stats: None,
    },
    input: 30,
    logits: 34,
    arena: 38,
    ..PLAN
};
const WIDE_NODE: Node =
    Node { input: Operand { at: 30, grad: None }, output: 34, output_grad: Some(34), ..NODE };
const GUIDE: [f32; 6] = [0.5, 0.25, -1.0, 0.125, 2.0, -0.5];
const OTHER_RUN: RunId = RunId(10);

fn six() -> BytesShard<'static> {
    let bytes = &[0, 200, 200, 0, 10, 180, 190, 20, 90, 80, 0, 255];
    let samples = Images::new(bytes, &[0, 1, 0, 1, 1, 0], 2).unwrap();
    BytesShard::new(samples, Images::new(&[0, 255, 250, 30], &[0, 1], 2).unwrap(), 1.0 / 255.0).unwrap()
}

fn guide_bytes() -> Vec<u8> {
    GUIDE.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn guide() -> Option<Blob> {
    Some(Blob { transfer: TransferId(2), bytes: 24, check: crc32(&guide_bytes()) })
}

fn brief() -> Brief {
    Brief::sgd(2, 2, 0.5, 3)
}

fn staged(round: u32, exchange: u8, task: Task, guide: Option<Blob>) -> Assignment {
    Assignment { ticket: Ticket { round, exchange, ..TICKET }, task, guide, ..assignment() }
}

fn guided() -> Task {
    Task::Train(Brief { objective: Objective { align: 1.0, ..Objective::default() }, ..brief() })
}

fn trials(steps: &[f32]) -> Task {
    Task::Try(heapless::Vec::from_slice(steps).unwrap())
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

impl<'a> Device<'a> {
    fn wide(arena: &'a mut [f32; 38]) -> Self {
        let mut device = Self::with(arena, WIDE, WIDE_NODE, six());
        device.join();
        device
    }

    /// Answers every Fetch until there is work; returns the fetched transfers.
    fn assign(&mut self, assignment: &Assignment) -> Vec<u32> {
        let mut fetched = vec![];
        self.hear(&ToDevice::Assignment(assignment.clone()));
        while !self.session.has_work() {
            let (messages, _) = self.say();
            let fetch = messages.iter().find_map(|message| match message {
                ToAggregator::Fetch(fetch) => Some(*fetch),
                _ => None,
            });
            let fetch = fetch.expect("a fetch while there is no work");
            let bytes = if fetch.transfer == TransferId(1) { model_bytes() } else { guide_bytes() };
            fetched.push(fetch.transfer.0);
            for offset in (fetch.offset as usize..24).step_by(8) {
                self.hear_transfer(fetch.transfer, offset as u32, &bytes[offset..offset + 8]);
            }
        }
        self.say();
        fetched
    }

    /// From Offer to Receipt; returns what was sent.
    fn deliver(&mut self) -> (Offer, Vec<f32>) {
        let offer = self.train();
        let mut sent = vec![];
        if offer.update.bytes > 0 {
            self.hear(&ToDevice::Fetch(Fetch { transfer: offer.update.transfer, offset: 0 }));
            sent = floats(&self.say().1);
        }
        self.hear(&ToDevice::Receipt(Receipt { ticket: offer.ticket, refused: None }));
        assert_eq!(self.say().0, [ToAggregator::Ready]);
        (offer, sent)
    }

    fn exchange(&mut self, round: u32, exchange: u8, task: Task) -> Scalars {
        self.assign(&staged(round, exchange, task, None));
        self.deliver().0.scalars
    }

    /// The code that is sent to the aggregator; nothing may be fetched.
    fn refusal(&mut self) -> Code {
        let code = match self.say().0.as_slice() {
            [ToAggregator::Refusal(refusal)] => refusal.code,
            other => panic!("{other:?}"),
        };
        while let Some(event) = self.session.poll_event() {
            if let Event::Failed { round: 1, code: told } = event {
                assert_eq!(told, code);
                return code;
            }
        }
        panic!("no event");
    }
}

#[test]
fn a_guide_follows_the_model_and_each_resumes_where_it_was() {
    let mut arena = [0.0; 38];
    let mut device = Device::wide(&mut arena);
    let step = Task::Train(Brief {
        objective: Objective { align: 1.0, ..Objective::default() },
        product: Product::FirstStep,
        ..brief()
    });
    device.hear(&ToDevice::Assignment(staged(1, 0, step, guide())));
    assert_eq!(device.say().0, [ToAggregator::Fetch(Fetch { transfer: TransferId(1), offset: 0 })]);
    device.hear_transfer(TransferId(1), 0, &model_bytes()[..8]);
    device.session.handle_disconnected();
    device.connect(TICKET.run);
    assert_eq!(
        device.say().0.last(),
        Some(&ToAggregator::Fetch(Fetch { transfer: TransferId(1), offset: 8 }))
    );
    device.hear_transfer(TransferId(1), 8, &model_bytes()[8..16]);
    device.say();
    device.hear_transfer(TransferId(1), 16, &model_bytes()[16..]);
    let [ack, fetch] = [
        ToAggregator::Ack(Ack { transfer: TransferId(1), next: 24 }),
        ToAggregator::Fetch(Fetch { transfer: TransferId(2), offset: 0 }),
    ];
    assert_eq!(device.say().0, [ack, fetch]);

    device.hear_transfer(TransferId(2), 0, &guide_bytes()[..8]);
    // A late copy of the model's last chunk does no harm.
    device.hear_transfer(TransferId(1), 16, &model_bytes()[16..]);
    device.session.handle_disconnected();
    device.connect(TICKET.run);
    assert_eq!(
        device.say().0.last(),
        Some(&ToAggregator::Fetch(Fetch { transfer: TransferId(2), offset: 8 }))
    );
    device.hear_transfer(TransferId(2), 8, &guide_bytes()[8..16]);
    assert!(!device.session.has_work());
    device.hear_transfer(TransferId(2), 16, &guide_bytes()[16..]);
    device.say();
    assert_eq!(device.session.weights(), MODEL);
    // A step along the guide only.
    let (_, sent) = device.deliver();
    for (sent, (old, guide)) in sent.iter().zip(MODEL.iter().zip(GUIDE)) {
        assert_eq!(*sent, (old - 0.5 * guide) - old);
    }
}

#[test]
fn a_damaged_guide_is_fetched_again_and_the_model_is_not() {
    let mut arena = [0.0; 38];
    let mut device = Device::wide(&mut arena);
    device.hear(&ToDevice::Assignment(staged(1, 0, guided(), guide())));
    for (transfer, bytes) in [(TransferId(1), model_bytes()), (TransferId(2), model_bytes())] {
        for offset in [0, 8, 16] {
            device.hear_transfer(transfer, offset, &bytes[offset as usize..][..8]);
            device.say();
        }
    }
    assert!(!device.session.has_work());
    device.wait(100);
    assert_eq!(device.say().0, [ToAggregator::Fetch(Fetch { transfer: TransferId(2), offset: 0 })]);
    for offset in [0, 8, 16] {
        device.hear_transfer(TransferId(2), offset, &guide_bytes()[offset as usize..][..8]);
    }
    assert!(device.session.has_work());
}

/// FedEBA+: gradients, then training along the fair gradient.
#[test]
fn a_second_exchange_fetches_only_what_is_new() {
    let gradient = Task::Train(Brief { product: Product::Gradient, ..brief() });
    let mut arena = [0.0; 38];
    let mut device = Device::wide(&mut arena);
    assert_eq!(device.assign(&staged(1, 0, gradient, None)), [1]);
    let (first, sent) = device.deliver();
    assert_eq!((first.update.transfer.0, first.update.bytes, sent.len()), (1, 24, 6));
    assert_eq!(device.assign(&staged(1, 1, guided(), guide())), [2]);
    let (second, sent) = device.deliver();
    assert_eq!((second.ticket.exchange, second.update.transfer.0), (1, 1 | 1 << 24));
    assert_eq!(second.model_check, crc32(&model_bytes()));

    let mut arena = [0.0; 38];
    let mut fresh = Device::wide(&mut arena);
    assert_eq!(fresh.assign(&staged(1, 1, guided(), guide())), [1, 2]);
    assert_eq!(fresh.deliver().1, sent);
    // Training has changed the weights, but not the guide.
    assert_eq!(fresh.assign(&staged(1, 2, guided(), guide())), [1]);
    // A new model of the same length is a new model.
    fresh.deliver();
    let mut other = staged(2, 0, Task::Evaluate(None), None);
    fresh.assign(&other);
    fresh.deliver();
    other = staged(2, 1, Task::Evaluate(None), None);
    other.model.check ^= 1;
    fresh.hear(&ToDevice::Assignment(other));
    assert!(!fresh.session.has_work());
}

#[test]
fn trials_leave_everything_in_place() {
    let mut arena = [0.0; 38];
    let mut device = Device::wide(&mut arena);
    assert_eq!(device.assign(&staged(1, 0, Task::Evaluate(None), None)), [1]);
    let before = device.deliver().0.scalars.loss_before;
    assert_eq!(device.assign(&staged(1, 1, trials(&[0.5, 0.0]), guide())), [2]);
    let (offer, sent) = device.deliver();
    assert_eq!((offer.update.bytes, sent.len(), offer.scalars.loss_before), (0, 0, before));
    assert_eq!((offer.scalars.trials.len(), offer.scalars.trials[1]), (2, before));
    assert_ne!(offer.scalars.trials[0], before);
    // The direction is sent once.
    assert!(device.assign(&staged(1, 2, trials(&[0.5]), guide())).is_empty());
    let again = device.deliver().0.scalars;
    assert_eq!(again.trials[..], offer.scalars.trials[..1]);
    assert_eq!(device.session.weights(), MODEL);
}

#[test]
fn vectors_of_an_interrupted_exchange_are_fetched_again() {
    let mut arena = [0.0; 38];
    let mut device = Device::wide(&mut arena);
    device.assign(&staged(1, 0, trials(&[0.5, 0.25]), guide()));
    for _ in 0..5 {
        device.session.work(&six(), &mut Portable::plain(), device.now).unwrap();
    }
    assert!(device.session.has_work());
    assert_ne!(device.session.weights(), MODEL);
    assert_eq!(device.assign(&staged(2, 0, Task::Evaluate(None), None)), [1]);
    assert_eq!(device.session.weights(), MODEL);
}

#[test]
fn the_loss_reached_alone_is_remembered_for_the_run() {
    let alone = Task::Alone(Alone { brief: Brief { epochs: 20, ..brief() }, window: 3, tolerance: 1e-4 });
    let train = || Task::Train(Brief { gap: true, ..brief() });
    let mut arena = [0.0; 38];
    let mut device = Device::wide(&mut arena);
    assert_eq!(device.assign(&staged(1, 0, alone, None)), [1]);
    let (offer, _) = device.deliver();
    assert_eq!((offer.update.bytes, offer.scalars.samples, offer.scalars.gap), (0, 5, None));
    assert!(offer.scalars.steps > 0 && offer.scalars.loss_after < Some(offer.scalars.loss_before));
    device.session.handle_disconnected();
    device.connect(TICKET.run);
    device.say();
    // The model that training started from is still there.
    assert!(device.assign(&staged(1, 1, train(), None)).is_empty());
    let gap = device.deliver().0.scalars.gap.unwrap();
    assert!(gap.is_finite() && gap != 0.0);
    let later = device.exchange(2, 0, train()).gap;
    assert_eq!(later, Some(gap), "the same model, the same gap");

    // Another run has no baseline.
    device.session.handle_disconnected();
    device.connect(OTHER_RUN);
    device.hear(&ToDevice::PlanPart(PlanPart {
        digest: WIDE.digest,
        node: 0,
        step: 0,
        nodes: heapless::Vec::from_slice(&[WIDE_NODE]).unwrap(),
        steps: heapless::Vec::new(),
    }));
    device.say();
    assert_eq!(device.assign(&staged(1, 0, train(), None)), [1]);
    device.session.work(&six(), &mut Portable::plain(), device.now).unwrap_err();
    assert_eq!(device.refusal(), Code::NoBaseline);
}

#[test]
fn update_and_first_step_are_one_transfer() {
    let with = |product, epochs| Task::Train(Brief { product, epochs, ..brief() });
    let mut arena = [0.0; 38];
    let mut device = Device::wide(&mut arena);
    let sent = |device: &mut Device<'_>, round, product| {
        device.assign(&staged(round, 0, with(product, 2), None));
        device.deliver()
    };
    let update = sent(&mut device, 1, Product::Update).1;
    let first = sent(&mut device, 2, Product::FirstStep).1;
    let (offer, both) = sent(&mut device, 3, Product::Both);
    assert_eq!((offer.update.bytes, offer.scalars.steps), (48, 6));
    assert_eq!(both, [update, first].concat());
    assert_ne!(both[..6], both[6..]);
    // The first step is stored in the guide segment, so the guide is fetched again.
    device.assign(&staged(4, 0, guided(), guide()));
    device.deliver();
    sent(&mut device, 5, Product::Both);
    assert_eq!(device.assign(&staged(6, 0, guided(), guide())), [1, 2]);
    device.deliver();

    // In blocks that span both, and resumed behind the update.
    device.assign(&staged(7, 0, with(Product::Both, 2), None));
    let offer = device.train();
    device.hear(&ToDevice::Fetch(Fetch { transfer: TransferId(7), offset: 40 }));
    assert_eq!(floats(&device.say().1), both[10..]);
    device.hear(&ToDevice::Receipt(Receipt { ticket: offer.ticket, refused: None }));
    device.say();
    let int8 = Task::Train(Brief { codec: Codec::Int8, product: Product::Both, ..brief() });
    device.assign(&staged(8, 0, int8, None));
    let offer = device.train();
    assert_eq!(offer.update.bytes, 4 + 12);
    device.hear(&ToDevice::Fetch(Fetch { transfer: TransferId(8), offset: 0 }));
    let mut decoded = [0.0; 12];
    Codec::Int8.decode(&device.say().1, &mut decoded).unwrap();
    let largest = both.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
    assert!(both.iter().zip(decoded).all(|(value, decoded)| (value - decoded).abs() <= largest / 127.0));
}

#[test]
fn a_personal_model_stays_and_grows() {
    let personal = || Task::Train(Brief { personal: Some(0.1), ..brief() });
    let mut arena = [0.0; 38];
    let mut device = Device::wide(&mut arena);
    let first = device.exchange(1, 0, personal());
    let second = device.exchange(2, 0, personal());
    assert_eq!(first.test, second.test, "the same model was received");
    assert!(second.personal.unwrap().loss < first.personal.unwrap().loss);
    assert!(first.personal.unwrap().loss < first.test.unwrap().loss);
    // A brief without a personal model neither trains nor reports it, and does not discard it.
    assert_eq!(device.exchange(3, 0, Task::Train(brief())).personal, None);
    let third = device.exchange(4, 0, personal());
    assert!(third.personal.unwrap().loss < second.personal.unwrap().loss);

    let mut arena = [0.0; 38];
    let mut fresh = Device::wide(&mut arena);
    assert_eq!(fresh.exchange(7, 0, personal()), first);
}

#[test]
fn a_task_without_its_segment_is_refused_before_fetching() {
    let mut arena = [0.0; 26];
    let mut device = Device::new(&mut arena);
    device.join();
    let asks = [
        (Task::Train(Brief { personal: Some(0.1), ..brief() }), None, Code::BadPlan),
        (Task::Train(Brief { product: Product::Both, ..brief() }), None, Code::BadPlan),
        (guided(), guide(), Code::BadPlan),
        (trials(&[1.0]), guide(), Code::BadPlan),
        (Task::Train(brief()), guide(), Code::BadPlan),
        (Task::Train(Brief { batch: 0, ..brief() }), None, Code::BadConfig),
    ];
    for (exchange, (task, guide, code)) in asks.into_iter().enumerate() {
        device.hear(&ToDevice::Assignment(staged(1, exchange as u8, task, guide)));
        assert_eq!(device.refusal(), code, "{exchange}");
        device.wait(100);
        assert_eq!(device.say().0, [ToAggregator::Ready]);
    }
    assert_eq!(device.assign(&staged(1, 9, Task::Train(brief()), None)), [1]);

    // The task needs a guide, but the assignment has none.
    let mut arena = [0.0; 38];
    let mut device = Device::wide(&mut arena);
    for task in [trials(&[1.0]), guided()] {
        device.hear(&ToDevice::Assignment(staged(1, 0, task, None)));
        assert_eq!(device.refusal(), Code::BadConfig);
    }
    let mut long = staged(1, 0, guided(), guide());
    long.guide = Some(Blob { bytes: 28, ..guide().unwrap() });
    device.hear(&ToDevice::Assignment(long));
    assert_eq!(device.say().0, [ToAggregator::Refusal(Code::WrongShape.into())]);
}

#[test]
fn too_few_samples_for_validation_are_reported() {
    let mut arena = [0.0; 38];
    let mut device = Device::with(&mut arena, WIDE, WIDE_NODE, shard());
    device.join();
    let alone = Task::Alone(Alone { brief: brief(), window: 3, tolerance: 0.0 });
    device.assign(&staged(1, 0, alone, None));
    device.session.work(&shard(), &mut Portable::plain(), device.now).unwrap_err();
    assert_eq!(device.refusal(), Code::NoValidation);
}
