//! What a model predicts, if it is stated instead of read from the model's tail.
//!
//! | task | outputs per sample | loss |
//! |---|---|---|
//! | classification | one per class | softmax cross-entropy |
//! | binary | one, or several after a Sigmoid | binary cross-entropy |
//! | regression | one per number, nothing after them | squared error |
//! | per-token | classes for every token | softmax cross-entropy |

use common::plan::{Loss, TaskKind};

use crate::{
    graph::{Graph, Tail},
    plan::outputs,
};

/// Why a model cannot do what it is asked to.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant has its message")]
pub enum TaskError {
    #[error(
        "the task is {task}, but the model ends in {tail}, which gives probabilities; export it without {tail}, or \
         state another task"
    )]
    Tail { task: &'static str, tail: &'static str },
    #[error(
        "the task is binary, but the model has {0} outputs; a binary model has one. For two classes with one output \
         each state task = \"classification\""
    )]
    NotBinary(usize),
    #[error(
        "the task is {task}, but the model has one output for each sample; state task = \"binary\" for two classes or \
         \"regression\" for a number, or use a model with one output per class"
    )]
    OneOutput { task: &'static str },
    #[error(
        "the task is {task}, but the model predicts {targets} classes for each sample; state another task"
    )]
    Targets { task: &'static str, targets: u32 },
}

/// The loss of a task that is stated. [`default_loss`](crate::plan::default_loss) follows the model's tail.
pub fn loss_of_task(graph: &Graph, task: TaskKind) -> Result<Loss, TaskError> {
    let (tail, (classes, outputs)) = (graph.output().tail, outputs(graph, graph.full()));
    let ends = |tail: Tail| TaskError::Tail { task: task.name(), tail: tail.op_type() };
    let targets = outputs.checked_div(classes).unwrap_or(0);
    match (task, tail) {
        (TaskKind::Regression, Some(tail)) => Err(ends(tail)),
        (TaskKind::Regression, None) => Ok(Loss::Squared),
        (TaskKind::Binary, Some(tail @ (Tail::Softmax | Tail::LogSoftmax))) => Err(ends(tail)),
        (TaskKind::Binary, None) if outputs != 1 => Err(TaskError::NotBinary(outputs as usize)),
        (TaskKind::Binary, _) => Ok(Loss::Sigmoid),
        (_, Some(tail @ (Tail::Sigmoid | Tail::TwoClasses))) => Err(ends(tail)),
        _ if classes <= 1 => Err(TaskError::OneOutput { task: task.name() }),
        (TaskKind::Classification, _) if targets != 1 => {
            Err(TaskError::Targets { task: task.name(), targets })
        }
        (TaskKind::PerToken, _) if targets < 2 => Err(TaskError::Targets { task: task.name(), targets }),
        (TaskKind::Classification | TaskKind::PerToken, _) => Ok(Loss::Softmax { classes }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{plan::default_loss, zoo};

    fn model(source: &str, tail: Option<Tail>) -> Graph {
        let (mut graph, _) = zoo::build(source, 0).unwrap();
        graph.output.tail = tail;
        graph
    }

    #[test]
    fn a_task_that_is_stated_decides_the_loss() {
        let of = |source: &str, tail, task| loss_of_task(&model(source, tail), task);
        let softmax = Loss::Softmax { classes: 3 };
        assert_eq!(of("mlp:4-3", None, TaskKind::Classification), Ok(softmax));
        assert_eq!(of("mlp:4-3", Some(Tail::Softmax), TaskKind::Classification), Ok(softmax));
        assert_eq!(of("mlp:4-3", None, TaskKind::Regression), Ok(Loss::Squared));
        assert_eq!(of("mlp:4-1", None, TaskKind::Regression), Ok(Loss::Squared));
        for tail in [None, Some(Tail::Sigmoid), Some(Tail::TwoClasses)] {
            assert_eq!(of("mlp:4-1", tail, TaskKind::Binary), Ok(Loss::Sigmoid));
        }
        assert_eq!(default_loss(&model("mlp:4-1", None)), Loss::Sigmoid);
    }

    #[test]
    fn contradictions_are_refused_with_the_next_step() {
        let error =
            |source: &str, tail, task| loss_of_task(&model(source, tail), task).unwrap_err().to_string();
        let found = error("mlp:4-3", Some(Tail::Softmax), TaskKind::Regression);
        assert!(found.contains("ends in Softmax") && found.contains("export it without"), "{found}");
        let found = error("mlp:4-1", Some(Tail::Sigmoid), TaskKind::Classification);
        assert!(found.contains("ends in Sigmoid"), "{found}");
        let found = error("mlp:4-2", None, TaskKind::Binary);
        assert!(found.contains("2 outputs") && found.contains("\"classification\""), "{found}");
        let found = error("mlp:4-1", None, TaskKind::Classification);
        assert!(found.contains("\"binary\"") && found.contains("\"regression\""), "{found}");
        assert!(error("mlp:4-3", None, TaskKind::PerToken).contains("predicts 1 classes"));
    }
}
