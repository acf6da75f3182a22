//! The best model: it is kept with its round's commit or not at all, and survives restarts and rollbacks.

use coordinator::{
    best::{BestBy, Measured},
    wall::WallTime,
};

use super::*;

fn best(round: u32, unimproved: u32) -> BestModel {
    BestModel { round, by: BestBy::Mean, measured: Measured::Loss, value: 0.5, unimproved }
}

/// Commits a round whose best model is this one.
fn commit_best(store: &mut dyn Store, number: u32, best: Option<&BestModel>) {
    store.open_round(&round(number)).unwrap();
    let parameters = [number as f32; 3];
    let report = serde_json::json!({ "round": number, "best": best }).to_string();
    let commit =
        Commit { round: number, parameters: &parameters, report: &report, best, ..Commit::default() };
    store.commit_round(&commit).unwrap();
}

fn kept(store: &dyn Store) -> Vec<u32> {
    store.kept_models().unwrap().into_iter().map(|kept| kept.round).collect()
}

#[test]
fn the_best_model_stays_until_another_one_is_better() {
    each(|store| {
        store.begin_run(&run(), &[0.0; 3]).unwrap();
        commit_best(store, 1, None);
        commit_best(store, 2, Some(&best(1, 0)));
        for number in 3..=9 {
            commit_best(store, number, Some(&best(1, number.saturating_sub(2))));
        }
        assert_eq!(kept(store), [1, 8, 9]);
        assert_eq!(store.parameters(1).unwrap(), Some(vec![1.0; 3]));
        let saved = store.load(&mark()).unwrap().unwrap();
        assert_eq!((saved.best, saved.parameters, saved.next_round), (Some(best(1, 7)), vec![9.0; 3], 10));
        commit_best(store, 10, Some(&best(9, 0)));
        assert_eq!(kept(store), [9, 10]);
        // The scores of the final model.
        store.set_best(&best(10, 0)).unwrap();
        assert_eq!(kept(store), [9, 10]);
        assert_eq!(store.load(&mark()).unwrap().unwrap().best, Some(best(10, 0)));
        for KeptModel { round, crc } in store.kept_models().unwrap() {
            assert_eq!(crc, weights_digest(&[round as f32; 3]));
        }
    });
}

#[test]
fn what_a_run_began_with_and_its_last_configuration_are_remembered() {
    each(|store| {
        store.begin_run(&run(), &[1.5; 3]).unwrap();
        let saved = store.load(&mark()).unwrap().unwrap();
        assert_eq!((saved.weights, saved.config), (Some(weights_digest(&[1.5; 3])), None));
        assert_ne!(saved.weights, Some(weights_digest(&[1.5, 1.5, 2.5])));
        for (number, config) in [(1, Some("a = 1")), (2, None), (3, Some("a = 2"))] {
            store.open_round(&round(number)).unwrap();
            let commit =
                Commit { round: number, parameters: &[0.0; 3], report: "{}", config, ..Commit::default() };
            store.commit_round(&commit).unwrap();
            let expected = if number == 3 { "a = 2" } else { "a = 1" };
            assert_eq!(store.load(&mark()).unwrap().unwrap().config.as_deref(), Some(expected));
        }
        store.open_round(&RoundRecord { began: Some(WallTime(77)), ..round(4) }).unwrap();
        let open = store.load(&mark()).unwrap().unwrap().open.unwrap();
        assert_eq!(open.record.began, Some(WallTime(77)));
    });
}

#[test]
fn the_best_model_survives_a_restart_and_is_verified() {
    let dir = TempDir::new().unwrap();
    let mut store = disk(&dir);
    store.begin_run(&run(), &[0.0; 3]).unwrap();
    for number in 1..=6 {
        commit_best(&mut store, number, (number > 1).then_some(&best(1, number.saturating_sub(2))));
    }
    drop(store);
    let found = DiskStore::verify(dir.path()).unwrap();
    assert_eq!((found.models, found.best, found.problems), (vec![1, 5, 6], Some(best(1, 4)), vec![]));
    let store = disk(&dir);
    assert_eq!((kept(&store), store.parameters(1).unwrap()), (vec![1, 5, 6], Some(vec![1.0; 3])));
    // As beside a server, which has the ledger open.
    let list = store.kept_models().unwrap();
    assert_eq!(DiskStore::read_kept(dir.path(), list[0]).unwrap(), [1.0; 3]);
    assert!(matches!(DiskStore::kept(dir.path()), Err(StoreError::Locked { .. })));
    drop(store);
    assert_eq!(
        DiskStore::kept(dir.path()).unwrap().unwrap(),
        KeptList { models: list, best: Some(best(1, 4)) }
    );
    fs::remove_file(dir.path().join("models/round-000001.model")).unwrap();
    let found = DiskStore::verify(dir.path()).unwrap();
    assert!(
        found.problems.iter().any(|problem| problem.contains("round-000001.model")),
        "{:?}",
        found.problems
    );
}

#[test]
fn a_rollback_keeps_the_best_model_or_goes_back_to_an_earlier_one() {
    for (to, left, models) in [
        (6, Some(best(3, 2)), vec![3, 5, 6]),
        (5, Some(best(3, 1)), vec![3, 5]),
        (3, Some(best(3, 0)), vec![3]),
    ] {
        let dir = TempDir::new().unwrap();
        let mut store = disk(&dir);
        store.begin_run(&run(), &[0.0; 3]).unwrap();
        for number in 1..=6 {
            commit_best(&mut store, number, (number > 3).then_some(&best(3, number.saturating_sub(4))));
        }
        drop(store);
        let done = DiskStore::rollback(dir.path(), to).unwrap();
        assert_eq!((done.best, done.parameters), (left.clone(), vec![to as f32; 3]), "{to}");
        let found = DiskStore::verify(dir.path()).unwrap();
        assert_eq!((found.best, found.models, found.problems), (left, models, vec![]), "{to}");
        let mut store = disk(&dir);
        assert_eq!(store.load(&mark()).unwrap().unwrap().next_round, to + 1);
    }
    let dir = TempDir::new().unwrap();
    let mut store = disk(&dir);
    store.begin_run(&run(), &[0.0; 3]).unwrap();
    for number in 1..=4 {
        commit_best(&mut store, number, Some(&best(number - 1, 0)));
    }
    drop(store);
    let mut store = disk(&dir);
    commit_best(&mut store, 5, Some(&best(4, 0)));
    store.set_best(&best(5, 0)).unwrap();
    drop(store);
    // Round 5 is undone; the best one of round 4 was dropped since.
    assert_eq!(DiskStore::rollback(dir.path(), 4).unwrap().best, None);
    assert_eq!(DiskStore::verify(dir.path()).unwrap().best, None);

    let dir = TempDir::new().unwrap();
    let mut store = DiskStore::open(dir.path(), Options { keep_models: 9, ..Options::default() }).unwrap();
    store.begin_run(&run(), &[0.0; 3]).unwrap();
    for number in 1..=6 {
        commit_best(&mut store, number, Some(&best(number - 1, 0)));
    }
    drop(store);
    assert_eq!(DiskStore::rollback(dir.path(), 3).unwrap().best, Some(best(2, 0)), "as after round 3");
    assert_eq!(DiskStore::verify(dir.path()).unwrap().best, Some(best(2, 0)));
}

/// The commit of a round fails: the best model is the one before, and its file is there.
#[test]
fn a_commit_that_fails_changes_no_best_model() {
    let dir = TempDir::new().unwrap();
    let mut store = disk(&dir);
    store.begin_run(&run(), &[0.0; 3]).unwrap();
    for number in 1..=4 {
        commit_best(&mut store, number, (number > 1).then_some(&best(1, number.saturating_sub(2))));
    }
    store.open_round(&round(5)).unwrap();
    let models = dir.path().join("models");
    let obstacle = models.join("round-000005.model");
    fs::create_dir(&obstacle).unwrap();
    let other = best(4, 0);
    let commit =
        Commit { round: 5, parameters: &[5.0; 3], report: "{}", best: Some(&other), ..Commit::default() };
    store.commit_round(&commit).unwrap_err();
    drop(store);
    fs::remove_dir(obstacle).unwrap();
    let mut store = disk(&dir);
    let saved = store.load(&mark()).unwrap().unwrap();
    assert_eq!((saved.best, saved.next_round, kept(&store)), (Some(best(1, 2)), 5, vec![1, 3, 4]));
}

/// A store of format 5 has none of the keys, whether its initial model is kept or not.
#[test]
fn a_store_of_format_5_gets_the_keys() {
    for (rounds, weights) in [(1, Some(weights_digest(&[0.0; 3]))), (5, None)] {
        let dir = TempDir::new().unwrap();
        let mut store = disk(&dir);
        store.begin_run(&run(), &[0.0; 3]).unwrap();
        (1..=rounds).for_each(|number| commit_best(&mut store, number, None));
        store.open_round(&round(rounds + 1)).unwrap();
        append(&mut store, "a", rounds + 1, 1.0);
        drop(store);
        let db = redb::Database::open(dir.path().join(ledger::FILE)).unwrap();
        let txn = db.begin_write().unwrap();
        {
            let mut meta = txn.open_table(ledger::META).unwrap();
            for key in ["best", "config", "weights", "began"] {
                assert!(meta.remove(key).unwrap().is_some(), "{key}");
            }
        }
        txn.commit().unwrap();
        drop(db);
        set_format(dir.path(), 5);
        let found = DiskStore::verify(dir.path()).unwrap();
        assert_eq!((found.format, found.problems, found.best, found.updates), (5, vec![], None, 1));
        let mut store = disk(&dir);
        let saved = store.load(&mark()).unwrap().unwrap();
        assert_eq!((saved.best, saved.config, saved.weights), (None, None, weights));
        assert_eq!(saved.open.map(|open| (open.record.round, open.record.began)), Some((rounds + 1, None)));
        drop(store);
        let found = DiskStore::verify(dir.path()).unwrap();
        assert_eq!((found.format, found.problems), (6, vec![]));
    }
    // A store without a run stays without one.
    let dir = TempDir::new().unwrap();
    drop(disk(&dir));
    set_format(dir.path(), 5);
    assert_eq!(disk(&dir).load(&mark()).unwrap(), None);
}
