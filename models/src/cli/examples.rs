//! What `--help` shows after the options.

pub(super) const ALL: &str = "\
Examples:
  models zoo                                          what comes with FairTier
  models inspect digits-mlp                           layers, hidden axes, needs of every tier
  models inspect net.onnx --tiers 1,0.5 --batch 8
  models plan net.onnx --tier 0.25 --batch 16 --optimizer sgd --ram 64k
  models slice net.onnx --tier 0.5 --out half.onnx    the sub-model of one tier
  models slice net.onnx --widths 16,8 --out small.onnx
  models export net.onnx --out tiers/                 the whole model and one file per tier
  models check net.onnx                               is everything computed right, in every tier?
  models grad net.onnx --inputs x.npy --labels y.npy --out grads.npz

MODEL is an ONNX file or a name from `models zoo`.
Exit codes: 0 done, 1 failed (plan: does not fit; check: something is wrong), 2 wrong usage.";

pub(super) const INSPECT: &str = "\
Examples:
  models inspect digits-mlp
  models inspect net.onnx --tiers 1,0.5 --batch 8";

pub(super) const SLICE: &str = "\
Examples:
  models slice net.onnx --tier 0.5 --out half.onnx        half of every hidden axis
  models slice net.onnx --widths 16,8 --out small.onnx    so many units of each";

pub(super) const EXPORT: &str = "\
Examples:
  models export net.onnx --out tiers                      tiers/net.onnx, tiers/net-tier0.onnx and so on
  models export digits-mlp --tiers 1,0.25 --out tiers --format json";

pub(super) const PLAN: &str = "\
Examples:
  models plan net.onnx --tier 0.25 --ram 64k              exit code 1 if it does not fit
  models plan digits-mlp --optimizer adam --batch 8 --buffers";

pub(super) const CHECK: &str = "\
Examples:
  models check net.onnx                                   exit code 1 if something is wrong
  models check net.onnx --tiers 1,0.5 --loss softmax --format json";

pub(super) const GRAD: &str = "\
Examples:
  models grad net.onnx --inputs x.npy --labels y.npy --out grads.npz
  models grad net.onnx --tier 0.5 --inputs x.npy --labels y.npy --out half.npz";

pub(super) const ZOO: &str = "\
Examples:
  models zoo
  models zoo --format json | jq -r .[].name";
