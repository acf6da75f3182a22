//! The experiments that come with the simulator: the files of `sim/experiments/`.

/// Names and texts.
pub const ALL: &[(&str, &str)] = &[
    ("eagle-dirichlet", include_str!("../../experiments/eagle-dirichlet.toml")),
    ("eagle-synthetic", include_str!("../../experiments/eagle-synthetic.toml")),
    ("fairheterofl-cifar", include_str!("../../experiments/fairheterofl-cifar.toml")),
    ("fairheterofl-mnist-extreme", include_str!("../../experiments/fairheterofl-mnist-extreme.toml")),
    ("fairheterofl-mnist-iid", include_str!("../../experiments/fairheterofl-mnist-iid.toml")),
    ("fairheterofl-mnist-noniid", include_str!("../../experiments/fairheterofl-mnist-noniid.toml")),
    ("fairheterofl-shakespeare", include_str!("../../experiments/fairheterofl-shakespeare.toml")),
    ("fedeba-cifar", include_str!("../../experiments/fedeba-cifar.toml")),
    ("fedeba-fmnist", include_str!("../../experiments/fedeba-fmnist.toml")),
    ("fedfb-clients", include_str!("../../experiments/fedfb-clients.toml")),
    ("fedfb-heterogeneity", include_str!("../../experiments/fedfb-heterogeneity.toml")),
    ("fedfb-laplace", include_str!("../../experiments/fedfb-laplace.toml")),
    ("fedfb-parity", include_str!("../../experiments/fedfb-parity.toml")),
    ("fedfb-synthetic-logistic", include_str!("../../experiments/fedfb-synthetic-logistic.toml")),
    ("fedfb-synthetic-net", include_str!("../../experiments/fedfb-synthetic-net.toml")),
    ("fedfb-tables", include_str!("../../experiments/fedfb-tables.toml")),
    ("fedlf-cifar", include_str!("../../experiments/fedlf-cifar.toml")),
    ("fedlf-conflicts", include_str!("../../experiments/fedlf-conflicts.toml")),
    ("fedlf-fmnist-dir", include_str!("../../experiments/fedlf-fmnist-dir.toml")),
    ("fedlf-fmnist-pat1", include_str!("../../experiments/fedlf-fmnist-pat1.toml")),
    ("fedlf-fmnist-pat2", include_str!("../../experiments/fedlf-fmnist-pat2.toml")),
    ("int8-mnist", include_str!("../../experiments/int8-mnist.toml")),
    ("tour", include_str!("../../experiments/tour.toml")),
];
