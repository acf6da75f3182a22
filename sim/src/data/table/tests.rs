use std::fs;

use super::*;

/// A header with the direct identifiers of the original.
const HEAD: &str = "id,name,first,last,sex,dob,age,age_cat,race,juv_fel_count,juv_misd_count,juv_other_count,priors_count,c_case_number,c_charge_degree,two_year_recid,priors_count\n";

fn row(index: usize) -> String {
    let (sex, race) = (["Male", "Female"][index % 2], ["African-American", "Other"][index / 2 % 2]);
    let (age, again) = (20 + index, index % 3 % 2);
    format!("{index},x y,x,y,{sex},1990-01-01,{age},any,{race},0,1,2,{index},13-1,F,{again},9\n")
}

fn load_compas(text: &str) -> Result<DataSet, String> {
    load_as(text, &COMPAS)
}

fn load_as(text: &str, schema: &Schema) -> Result<DataSet, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("people.csv");
    fs::write(&path, text).unwrap();
    load("x", &[path], schema, 3).map_err(|error| error.to_string())
}

#[test]
fn only_declared_columns_are_read() {
    let rows: String = (0..40).map(row).collect();
    let set = load_compas(&(HEAD.to_owned() + &rows)).unwrap();
    // 5 numbers, 2 sexes, 1 age category, 2 races, 1 degree.
    assert_eq!((set.inputs(), set.train.len(), set.test.len()), (11, 28, 12));
    assert_eq!(set.train.features().range(), Some((0.0, 1.0)));
    let text = format!("{set:?}");
    assert!(!text.contains("1990") && !text.contains("13-1") && !text.contains("x y"));
}

#[test]
fn groups_and_clients_follow_the_rules() {
    let rows: String = (0..40).map(row).collect();
    let set = load_compas(&(HEAD.to_owned() + &rows)).unwrap();
    assert_eq!(set.group_names[3], "Male, African-American");
    assert_eq!(&*set.client_names, ["age to 31", "age above 31"]);
    let mut counts = [0; 4];
    for part in [&set.train, &set.test] {
        part.groups().iter().for_each(|&group| counts[usize::from(group)] += 1);
    }
    assert_eq!(counts, [10; 4]);
    let young =
        [&set.train, &set.test].map(|part| part.clients().iter().filter(|&&client| client == 0).count());
    assert_eq!(young.iter().sum::<usize>(), 12);
}

#[test]
fn quintiles_and_quotes_of_the_bank() {
    let head = "\"age\";\"job\";\"marital\";\"education\";\"default\";\"balance\";\"housing\";\"loan\";\"contact\";\"day\";\"month\";\"duration\";\"campaign\";\"pdays\";\"previous\";\"poutcome\";\"y\"\n";
    let row = |age: usize| {
        let yes = ["no", "yes"][age % 2];
        format!(
            "{age};\"a;b\";\"m\";\"e\";\"no\";-5;\"no\";\"{yes}\";\"c\";5;\"may\";261;1;-1;0;\"u\";\"{yes}\"\n"
        )
    };
    let rows: String = (20..120).map(row).collect();
    let set = load_as(&(head.to_owned() + &rows), &BANK).unwrap();
    assert_eq!(set.groups(), 5);
    let mut counts = [0; 5];
    set.train.groups().iter().for_each(|&group| counts[usize::from(group)] += 1);
    assert_eq!(counts, [14; 5]);
    assert!(set.group_names[0].starts_with("age below"), "{:?}", set.group_names);
}

#[test]
fn both_spellings_of_a_label_and_comments() {
    let row = |label: &str, sex: &str| {
        format!("39, Private, 77516, ?, 13, M, A, N, White, {sex}, 2174, 0, 40, United-States, {label}\n")
    };
    let text = format!("|1x3 Cross validator\n{}\n{}", row("<=50K", "Male"), row(">50K.", "Female"));
    let set = load_as(&text, &ADULT).unwrap();
    let mut both: Vec<(u32, u8)> = [&set.train, &set.test]
        .iter()
        .flat_map(|part| part.labels().iter().copied().zip(part.groups().iter().copied()))
        .collect();
    both.sort_unstable();
    assert_eq!(both, [(0, 1), (1, 0)]);
    assert!(load_as(&row("rich", "Male"), &ADULT).unwrap_err().contains("people.csv:1: `income` is not"));
    assert!(load_as(&row(">50K", "-"), &ADULT).unwrap_err().contains("`sex` is none of Female, Male"));
}

#[test]
fn damage_is_reported_with_its_line_and_without_field_values() {
    let text = |rows: &str| load_compas(&(HEAD.to_owned() + rows)).unwrap_err();
    assert!(text(&(row(0) + "1,2\n")).contains("people.csv:3: has 2 columns where 17 are expected"));
    let secret = row(0).replace(",20,", ",Jane,");
    let error = text(&secret);
    assert!(
        error.contains("people.csv:2: `age` is not a finite number") && !error.contains("Jane"),
        "{error}"
    );
    assert!(text(&row(0).replace(",20,", ",,")).contains("`age` is missing"));
    assert!(text("\"1,2\n").contains("people.csv:2: has a quote that is not closed"));
    assert!(text("").contains("people.csv: holds no rows"));
    assert!(load_compas("a,b\n1,2\n").unwrap_err().contains("there is no column `age`"));
}

#[test]
fn the_division_follows_the_seed() {
    let (train, test) = divide(1000, 1);
    assert_eq!((train.len(), test.len()), (700, 300));
    assert_eq!(divide(1000, 1), (train.clone(), test));
    assert_ne!(divide(1000, 2).0, train);
}
