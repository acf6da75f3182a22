use std::sync::Arc;

use proptest::prelude::{ProptestConfig, prop_assert, prop_assert_eq, proptest};
use trainer::data::{DataSplit, Shard};

use super::*;
use crate::data::{DataDirs, Features, known};

/// Classes, groups and natural clients derive from a hash of the index.
fn set(train: u32, test: u32, classes: u32) -> DataSet {
    let part = |count: u32, salt: u64| {
        let word = |index: u32, what: u64| common::rng::mix(u64::from(index) << 8 ^ salt << 4 ^ what);
        let labels = (0..count).map(|index| (word(index, 0) % u64::from(classes)) as u32).collect();
        let groups = (0..count).map(|index| (word(index, 1) % 2) as u8).collect();
        let clients = (0..count).map(|index| (word(index, 2) % 9 * (word(index, 3) % 2)) as u32).collect();
        let features = Features::Bytes { data: vec![0; count as usize], scale: 1.0 };
        let records = Records::new(features, labels, 1, 1).unwrap();
        records.with_groups(groups).unwrap().with_clients(clients).unwrap()
    };
    DataSet::new("made", vec![1], classes, part(train, 1), part(test, 2))
        .and_then(|set| set.with_group_names(vec!["a".into(), "b".into()]))
        .and_then(|set| set.with_client_names((0..9).map(|client| format!("n{client}")).collect()))
        .unwrap()
}

fn all_kinds() -> Vec<Partition> {
    let texts = [
        "iid",
        "shards:3",
        "dominant:0.7",
        "extreme",
        "pat:2",
        "dirichlet:5",
        "dirichlet-free:0.1",
        "natural:3:1",
        "groups:50/30/20,20/40/40",
        "strata:80/20,20/80,50/50,0/100,100/0,10/90,30/70,60/40,1/99",
    ];
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn clients_for(partition: &Partition, clients: usize) -> Option<usize> {
    match partition {
        Partition::Natural { .. } | Partition::Fractions { .. } => None,
        _ => Some(clients),
    }
}

fn sorted(lists: impl IntoIterator<Item = Vec<u32>>) -> Vec<u32> {
    let mut all: Vec<u32> = lists.into_iter().flatten().collect();
    all.sort_unstable();
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn every_partition_conserves_samples_and_follows_its_seed(
        train in 200u32..600,
        test in 0u32..200,
        classes in 2u32..6,
        clients in 3usize..12,
        seed: u64,
        hold in 0.0f64..0.9,
    ) {
        let set = set(train, test, classes);
        for partition in all_kinds() {
            let wanted = clients_for(&partition, clients);
            for testing in [Testing::HoldOut(hold), Testing::Proportional] {
                let split = match partition.split(&set, wanted, testing, seed) {
                    Ok(split) => split,
                    Err(PartitionError::Floor { .. } | PartitionError::TooFew { .. }) => continue,
                    Err(error) => panic!("{partition}: {error}"),
                };
                prop_assert_eq!(partition.split(&set, wanted, testing, seed), Ok(split.clone()));
                if let Some(wanted) = wanted {
                    prop_assert_eq!(split.clients.len(), wanted);
                    prop_assert!(split.left_out.is_empty());
                }
                let split = split.with_validation(0.2, seed).unwrap();
                let own = split.clients.iter().flat_map(|share| [share.train.clone(), share.valid.clone()]);
                let tests: Vec<Vec<u32>> = split.clients.iter().map(|share| share.test.clone()).collect();
                let (from_train, from_test) = match split.held {
                    TestSource::Train => (tests, Vec::new()),
                    TestSource::Test => (Vec::new(), tests),
                };
                let seen = sorted(own.chain(from_train).chain([split.left_out.clone()]));
                prop_assert_eq!(seen, (0..train).collect::<Vec<_>>());
                let seen = sorted(from_test.into_iter().chain([split.left_out_test.clone()]));
                prop_assert_eq!(seen, (0..test).collect::<Vec<_>>());
            }
        }
    }
}

#[test]
fn test_data_follow_the_proportions_of_training() {
    let set = set(4000, 2000, 4);
    let split = "dirichlet:0.3".parse::<Partition>().unwrap();
    let split = split.split(&set, Some(8), Testing::Proportional, 1).unwrap();
    let count = |records: &Records, indices: &[u32], class: u32| {
        indices.iter().filter(|&&index| records.label(index, 0) == Ok(class)).count() as f64
    };
    let whole =
        |records: &Records, class: u32| records.labels().iter().filter(|&&label| label == class).count();
    for share in &split.clients {
        for class in 0..4 {
            let expected = count(&set.train, &share.train, class) / whole(&set.train, class) as f64
                * whole(&set.test, class) as f64;
            let there = count(&set.test, &share.test, class);
            assert!((there - expected).abs() <= 1.0, "{}: class {class}: {there} {expected}", share.name);
        }
    }
    assert!(split.left_out_test.is_empty());
}

#[test]
fn fractions_of_groups_are_those_asked_for() {
    let set = known::load("fedfb", &DataDirs::default(), 3).unwrap();
    let partition: Partition = "groups:medium".parse().unwrap();
    let split = partition.split(&set, Some(3), Testing::Proportional, 0).unwrap();
    let view = PartitionView::new(&set, &partition, &split, 0);
    let members = |group| view.clients.iter().map(|client| client.per_group[group]).sum::<usize>() as f64;
    for (client, shares) in view.clients.iter().zip([[0.5, 0.2], [0.3, 0.4], [0.2, 0.4]]) {
        for (group, share) in shares.into_iter().enumerate() {
            assert!((client.per_group[group] as f64 - share * members(group)).abs() <= 1.0);
        }
    }
    assert!(split.left_out.is_empty() && split.left_out_test.is_empty());
    let error = partition.split(&set, Some(4), Testing::Proportional, 0).unwrap_err();
    assert_eq!(error, PartitionError::Columns { there: 3, wanted: 4 });
}

#[test]
fn natural_clients_keep_their_own_and_small_ones_are_left_out() {
    let set = set(2000, 500, 3);
    let partition = Partition::Natural { train: 80, test: 20 };
    let split = partition.split(&set, Some(5), Testing::Proportional, 0).unwrap();
    assert_eq!(
        split.clients.iter().map(|share| &*share.name).collect::<Vec<_>>(),
        ["n0", "n1", "n2", "n3", "n4"]
    );
    for (client, share) in (0..).zip(&split.clients) {
        assert!(share.train.iter().all(|&index| set.train.clients()[index as usize] == client));
        assert!(share.test.iter().all(|&index| set.test.clients()[index as usize] == client));
        assert!(share.train.len() >= 80 && share.test.len() >= 20);
    }
    let error =
        Partition::Natural { train: 5000, test: 0 }.split(&set, None, Testing::default(), 0).unwrap_err();
    assert_eq!(error, PartitionError::TooFew { there: 0, wanted: 1 });
    let error = partition.split(&set, Some(10), Testing::default(), 0).unwrap_err();
    assert!(matches!(error, PartitionError::TooFew { wanted: 10, .. }));
}

#[test]
fn dirichlet_has_a_minimum_and_dirichlet_free_has_none() {
    let set = set(6000, 0, 10);
    let sizes = |text: &str| {
        let partition: Partition = text.parse().unwrap();
        let split = partition.split(&set, Some(30), Testing::HoldOut(0.0), 4).unwrap();
        let view = PartitionView::new(&set, &partition, &split, 4);
        (view.least, view.most, view.skew)
    };
    let (least, most, skew) = sizes("dirichlet:0.1");
    assert!(least >= 10 && most < 1000 && skew > 0.5, "{least} {most} {skew}");
    let (_, free_most, _) = sizes("dirichlet-free:0.1");
    assert!(free_most > most, "full clients must get no more: {free_most} {most}");
    let (least, most, skew) = sizes("dirichlet-free:2000");
    assert!(least > 180 && most < 220 && skew < 0.05, "{least} {most} {skew}");
    let error = "dirichlet:0.001".parse::<Partition>().unwrap().split(&set, Some(100), Testing::default(), 0);
    assert!(matches!(error, Err(PartitionError::Floor { least: 10, .. })));
}

#[test]
fn impossible_partitions_are_refused() {
    let plain = known::load("mixture-32", &DataDirs::default(), 0).unwrap();
    let fail = |text: &str, clients| {
        let partition: Partition = text.parse().unwrap();
        partition.split(&plain, clients, Testing::default(), 0).unwrap_err().to_string()
    };
    assert!(fail("iid", None).contains("`iid` needs a number of clients"));
    assert!(fail("iid", Some(0)).contains("needs a number"));
    assert!(fail("iid", Some(5001)).contains("5001 clients cannot share 5000 samples"));
    assert!(fail("natural", None).contains("no natural clients"));
    assert!(fail("groups:medium", None).contains("no groups"));
    assert!(fail("pat:11", Some(10)).contains("do not fit"));
    assert!(
        fail("rare:2", Some(1)).contains("two clients") && fail("rare:10", Some(5)).contains("does not fit")
    );
    let groups = set(100, 0, 2);
    let error =
        "groups:100,100,100".parse::<Partition>().unwrap().split(&groups, None, Testing::default(), 0);
    assert_eq!(error, Err(PartitionError::Strata { rows: 3, strata: 2, what: "groups" }));
    let error = Partition::Iid.split(&groups, Some(2), Testing::HoldOut(1.5), 0);
    assert_eq!(error, Err(PartitionError::HoldOut(1.5)));
}

#[test]
fn one_client_alone_has_the_rare_classes() {
    let data = set(1000, 200, 10);
    let split =
        "rare:2".parse::<Partition>().unwrap().split(&data, Some(9), Testing::Proportional, 3).unwrap();
    let labels: Vec<u32> = data.train.first_labels().collect();
    let size = labels.iter().filter(|&&label| label >= 2).count() / 8;
    for (number, client) in split.clients.iter().enumerate() {
        assert!((size..=size + 1).contains(&client.train.len()), "{number}");
        assert!(client.train.iter().all(|&index| (labels[index as usize] < 2) == (number == 0)), "{number}");
        assert!(!client.test.is_empty());
    }
    assert!(split.left_out.iter().all(|&index| labels[index as usize] < 2) && !split.left_out.is_empty());
    assert_eq!(Partition::Rare { classes: 2 }.to_string(), "rare:2");
}

#[test]
fn a_thousand_shards_share_one_data_set() {
    let data = Arc::new(set(20_000, 5000, 10));
    let split = Partition::Extreme.split(&data, Some(1000), Testing::default(), 0).unwrap();
    let shards = split.clone().with_validation(0.25, 0).unwrap().validation_shards(&data).unwrap();
    assert_eq!(Arc::strong_count(&data), 1001);
    assert!(shards.iter().all(|shard| (shard.train_len(), shard.test_len()) == (13, 5)));
    let shards = split.shards(&data).unwrap();
    let total: u32 = shards.iter().map(|shard| shard.train_len() + shard.test_len()).sum();
    assert_eq!(total, 20_000);
    let share = &split.clients[7];
    assert_eq!(shards[7].label(DataSplit::Test, 0), data.train.label(share.test[0], 0));
}
