//! Text that `--help` shows after the options.

pub(super) const ALL: &str = "\
Examples:
  fairtier model zoo                                          what comes with FairTier
  fairtier model inspect digits-mlp                           layers, hidden axes, needs of every tier
  fairtier model inspect net.onnx --tiers 1,0.5 --batch 8
  fairtier model plan net.onnx --tier 0.25 --batch 16 --optimizer sgd --ram 64k
  fairtier model slice net.onnx --tier 0.5 --out half.onnx    the sub-model of one tier
  fairtier model slice net.onnx --widths 16,8 --out small.onnx
  fairtier model export net.onnx --out tiers/                 the whole model and one file per tier
  fairtier model check net.onnx                               is everything computed right, in every tier?
  fairtier model grad net.onnx --inputs x.npy --labels y.npy --out grads.npz

MODEL is an ONNX file, a name from `fairtier model zoo`, or layers: mlp:4-16-3 has 4 inputs, 16 hidden units and 3 outputs;
cnn:28-4-8-10 takes images of 28x28, has two convolutions with 4 and 8 channels, and 10 classes;
lstm:8-8-16-10 takes 8 steps of 8 numbers, has 16 units, and 10 classes.
Exit codes: 0 done, 1 failed (plan: does not fit; check: something is wrong), 2 wrong usage.";

pub(super) const INSPECT: &str = "\
Examples:
  fairtier model inspect digits-mlp
  fairtier model inspect net.onnx --tiers 1,0.5 --batch 8";

pub(super) const SLICE: &str = "\
Examples:
  fairtier model slice net.onnx --tier 0.5 --out half.onnx        half of every hidden axis
  fairtier model slice net.onnx --widths 16,8 --out small.onnx    exact units of each axis";

pub(super) const EXPORT: &str = "\
Examples:
  fairtier model export net.onnx --out tiers                      tiers/net.onnx, tiers/net-tier0.onnx and so on
  fairtier model export digits-mlp --tiers 1,0.25 --out tiers --format json";

pub(super) const PLAN: &str = "\
Examples:
  fairtier model plan net.onnx --tier 0.25 --ram 64k              exit code 1 if it does not fit
  fairtier model plan digits-mlp --optimizer adam --batch 8 --buffers";

pub(super) const CHECK: &str = "\
Examples:
  fairtier model check net.onnx                                   exit code 1 if something is wrong
  fairtier model check net.onnx --tiers 1,0.5 --loss softmax --format json";

pub(super) const GRAD: &str = "\
Examples:
  fairtier model grad net.onnx --inputs x.npy --labels y.npy --out grads.npz
  fairtier model grad net.onnx --tier 0.5 --inputs x.npy --labels y.npy --out half.npz";

pub(super) const ZOO: &str = "\
Examples:
  fairtier model zoo
  fairtier model zoo --format json | jq -r .[].name";
