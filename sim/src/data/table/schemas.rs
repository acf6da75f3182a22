//! The tables of FedFB's experiments: columns, protected groups, and natural division.
//!
//! | set | label 1 | group | natural division |
//! |---|---|---|---|
//! | Adult | income above 50K | sex | works in the private sector or not |
//! | COMPAS | no new offence in two years | sex x African-American | age to 31 (the median) or above |
//! | Bank | subscribed | fifths by age | has a loan or not |
//!
//! COMPAS uses the common features that were known at the time of screening, without the score itself and the text of
//! the charge.

use super::{ClientRule, GroupRule, Label, Schema};

/// Adult, `adult.data` and `adult.test`: whether a person earns more than 50,000 dollars a year.
pub const ADULT: Schema = Schema {
    separator: b',',
    names: &[
        "age",
        "workclass",
        "fnlwgt",
        "education",
        "education-num",
        "marital-status",
        "occupation",
        "relationship",
        "race",
        "sex",
        "capital-gain",
        "capital-loss",
        "hours-per-week",
        "native-country",
        "income",
    ],
    comment: Some(b'|'),
    numbers: &["age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"],
    categories: &[
        "workclass",
        "education",
        "marital-status",
        "occupation",
        "relationship",
        "race",
        "sex",
        "native-country",
    ],
    label: Label {
        column: "income",
        texts: [&["<=50K", "<=50K."], &[">50K", ">50K."]],
        names: ["income to 50K", "income above 50K"],
    },
    groups: GroupRule::Values("sex", &["Female", "Male"]),
    clients: ClientRule::Value("workclass", "Private"),
};

/// COMPAS: whether a defendant commits no new offence in two years.
pub const COMPAS: Schema = Schema {
    separator: b',',
    names: &[],
    comment: None,
    numbers: &["age", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count"],
    categories: &["sex", "age_cat", "race", "c_charge_degree"],
    label: Label {
        column: "two_year_recid",
        texts: [&["1"], &["0"]],
        names: ["offended again", "no new offence"],
    },
    groups: GroupRule::Cross([("sex", "Male"), ("race", "African-American")]),
    clients: ClientRule::AtMost("age", 31),
};

/// Bank marketing: whether a customer subscribes to a deposit.
pub const BANK: Schema = Schema {
    separator: b';',
    names: &[],
    comment: None,
    numbers: &["age", "balance", "day", "duration", "campaign", "pdays", "previous"],
    categories: &[
        "job",
        "marital",
        "education",
        "default",
        "housing",
        "loan",
        "contact",
        "month",
        "poutcome",
    ],
    label: Label { column: "y", texts: [&["no"], &["yes"]], names: ["not subscribed", "subscribed"] },
    groups: GroupRule::Quantiles("age", 5),
    clients: ClientRule::Value("loan", "no"),
};
