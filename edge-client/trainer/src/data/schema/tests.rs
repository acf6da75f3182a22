use std::{fs, path::Path};

use super::*;
use crate::data::{Samples, Shard, VecShard};

const SCHEMA: &str = r#"
model = { source = "mlp:5-8-3" }

[data]
task = "classification"
columns = [
  { name = "age", type = "number", missing = "mean", scaling = { mean = 40, deviation = 10.0 } },
  { name = "height", type = "number", missing = { constant = 1.5 }, scaling = { min = 1.0, max = 2.0 } },
  { name = "work", type = "category", levels = ["office", "field", "none"], missing = { constant = "none" } },
  { name = "id", type = "ignored" },
  { name = "sex", type = "attribute", levels = ["f", "m"] },
  { name = "state", type = "label", classes = ["idle", "busy", "broken"] },
]
"#;

fn schema() -> Schema {
    Schema::from_toml(SCHEMA).unwrap()
}

/// Calls `read` with the path of a file.
fn with_file<T>(text: &str, read: impl FnOnce(&Path) -> T) -> T {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data.csv");
    fs::write(&path, text).unwrap();
    read(&path)
}

fn table(text: &str, schema: &Schema) -> Result<Table, String> {
    with_file(text, |path| {
        let place = format!("{}/", path.parent().unwrap().display());
        read(path, schema, Targets::Needed).map_err(|error| error.to_string().replace(&place, ""))
    })
}

fn samples(text: &str, schema: &Schema) -> Samples {
    with_file(text, |path| read(path, schema, Targets::Needed).unwrap().samples(schema, path).unwrap())
}

#[test]
fn columns_are_found_by_name() {
    let schema = schema();
    let straight = "age,height,work,id,sex,state\n50,1.25,field,7,m,busy\n?,NA,,8,f,idle\n";
    let samples = samples(straight, &schema);
    assert_eq!((samples.inputs(), samples.labels()), (5, &[1, 0][..]));
    assert_eq!(samples.features(), [1.0, 0.25, 0.0, 1.0, 0.0, 0.0, 0.5, 0.0, 0.0, 1.0]);
    let shard = VecShard::new(samples.clone(), Samples::default()).unwrap();
    assert_eq!(shard.summary().groups, [1, 0, 0, 1, 0, 0], "three classes, two levels");
    let shuffled = "\"state\";work;sex;height;age\nbusy;field;m;1.25;50\nidle;nan;f;?;\n";
    assert_eq!(self::samples(shuffled, &schema), samples);
}

#[test]
fn what_does_not_fit_is_named_with_its_remedy() {
    let schema = schema();
    let error = |text: &str| table(text, &schema).unwrap_err();
    let rows = |rows: &str| error(&format!("age,height,work,sex,state\n{rows}"));
    for (found, expected) in [
        (
            rows("1,1,office,f,idel\n"),
            "data.csv:2: column 5 (`state`) `idel` is none of the 3 classes in the schema; did you mean `idle`?; correct it, or add it to [data]",
        ),
        (
            rows("1,1,office,f,idle\n1,1,filed,f,idle\n"),
            "data.csv:3: column 3 (`work`) `filed` is none of the 3 levels in the schema; did you mean `field`?; correct it, or add it to [data]",
        ),
        (
            rows("x,1,office,f,idle\n"),
            "data.csv:2: column 1 (`age`) `x` is not a number; correct it, or make the column a category in [data]",
        ),
        (
            rows("1e99,1,office,f,idle\n"),
            "data.csv:2: column 1 (`age`) `1e99` is not finite, or too large; correct it",
        ),
        (
            rows("\"1,5\",1,office,f,idle\n"),
            "data.csv:2: column 1 (`age`) `1,5` has a decimal comma; write a point",
        ),
        (
            rows("1,1,office,f,?\n"),
            "data.csv:2: column 5 (`state`) has no value, and there is nothing to learn from the line without it; fill it in or remove the line",
        ),
        (
            rows("1,1,office,,idle\n"),
            "data.csv:2: column 4 (`sex`) has no value; fill it in, remove the line, or set `missing` of the column in [data]",
        ),
        (rows("1,1,office,f\n"), "data.csv:2: has 4 columns where the first line has 5; correct the line"),
        (rows(""), "data.csv: holds no samples"),
        (
            error("age,hight,work,sex,state\n"),
            "data.csv:1: has no column `height`; did you mean `hight`?; add it, or correct its name in [data]",
        ),
        (
            error("age,height,work,sex,state,weight\n"),
            "data.csv:1: column 6 (`weight`) is not in the schema; did you mean `height`?; add it to [data] with type \"ignored\", or set `extra = \"ignore\"`",
        ),
        (
            error("age,height,age,work,sex,state\n"),
            "data.csv:1: columns 1 and 3 are both called `age`; give each its own name",
        ),
        (
            error("1,2,3,4,5\n"),
            "data.csv:1: has no header, because it holds numbers only; name the columns, or set `header = false` in [data]",
        ),
        (
            error("?,2,office,m,idle\n1,2,office,m,idle\n"),
            "data.csv:1: has no column `age`; add it, or correct its name in [data]",
        ),
    ] {
        assert_eq!(found, expected);
    }
}

#[test]
fn without_a_header_the_order_of_the_schema_holds() {
    let mut schema = schema();
    schema.header = false;
    let line = "50,1.25,field,7,m,busy\n";
    assert_eq!(table(line, &schema).unwrap().labels, [1]);
    let error = table("?,1.25,field,7,m,?\n", &schema).unwrap_err();
    assert!(error.starts_with("data.csv:1: column 6 (`state`) has no value"), "{error}");
    let error = table("age,height,work,id,sex,state\n", &schema).unwrap_err();
    assert!(error.starts_with("data.csv:1: is the header, but the schema says `header = false`"), "{error}");
    let error = table("1,2,3\n", &schema).unwrap_err();
    assert!(error.starts_with("data.csv:1: has 3 columns, the schema has 6"), "{error}");
    let unlabelled = with_file("50,1.25,field,7\n", |path| read(path, &schema, Targets::Optional).unwrap());
    assert_eq!((unlabelled.features, unlabelled.labels), (vec![1.0, 0.25, 0.0, 1.0, 0.0], vec![]));
}

#[test]
fn predictions_need_no_label() {
    let schema = schema();
    let text = "work,age,height\nfield,50,1.25\n";
    assert!(table(text, &schema).unwrap_err().contains("has no column `sex`"));
    let table = with_file(text, |path| read(path, &schema, Targets::Optional).unwrap());
    assert_eq!(
        (table.features, table.labels, table.attributes),
        (vec![1.0, 0.25, 0.0, 1.0, 0.0], vec![], vec![])
    );
}

#[test]
fn extra_columns_are_ignored_only_if_the_schema_says_so() {
    let mut schema = schema();
    schema.ignore_extra = true;
    let text = "age,height,work,sex,state,weight\n50,1.25,field,m,busy,90\n";
    assert_eq!(table(text, &schema).unwrap().labels, [1]);
}

#[test]
fn the_mean_of_a_file_replaces_what_is_missing() {
    let schema = Schema::from_toml(
        r#"data = { task = "regression", columns = [
            { name = "x", type = "number", missing = "mean", scaling = { min = 0, max = 10 } },
            { name = "y", type = "target", scaling = { mean = 100, deviation = 50 } } ] }"#,
    )
    .unwrap();
    let found = table("x,y\n2,100\n?,200\n6,0\n", &schema).unwrap();
    assert_eq!((found.features, found.values), (vec![0.2, 0.4, 0.6], vec![0.0, 2.0, -2.0]));
    assert!(table("x,y\n?,1\n", &schema).unwrap_err().contains("column `x` has no value at all"));
    let scaling = schema.targets().next().unwrap().1;
    assert_eq!(scaling.undo(scaling.apply(7.5)), 7.5);
}

#[test]
fn numbers_as_classes_match_in_any_notation() {
    let schema = Schema::from_toml(
        r#"data = { task = "binary", columns = [{ name = "x", type = "number" },
            { name = "y", type = "label", classes = ["0", "1"] }] }"#,
    )
    .unwrap();
    assert_eq!(schema.outputs(), 1);
    assert_eq!(table("x,y\n1,1.0\n2,0\n3,1e0\n", &schema).unwrap().labels, [1, 0, 1]);
}

#[test]
fn a_recording_becomes_windows() {
    let schema = Schema::from_toml(
        r#"[data]
        task = "classification"
        window = { rows = 3, stride = 2, within = "person" }
        columns = [ { name = "ax", type = "number" }, { name = "ay", type = "number" },
            { name = "person", type = "ignored" },
            { name = "state", type = "label", classes = ["rest", "walk"] } ]"#,
    )
    .unwrap();
    assert_eq!(schema.inputs(), 6);
    let text = "ax,ay,person,state\n1,10,p,rest\n2,20,p,walk\n3,30,p,walk\n4,40,p,rest\n5,50,p,rest\n6,60,p,rest\n\
        7,70,q,walk\n8,80,q,walk\n9,90,q,walk\n";
    let found = table(text, &schema).unwrap();
    assert_eq!((found.labels.as_slice(), found.left_over), (&[1, 0, 1][..], 1));
    assert_eq!(found.features[..6], [1.0, 2.0, 3.0, 10.0, 20.0, 30.0]);
    assert_eq!(found.features[12..], [7.0, 8.0, 9.0, 70.0, 80.0, 90.0]);
    let short = table("ax,ay,person,state\n1,10,p,rest\n2,20,p,walk\n", &schema).unwrap_err();
    assert!(short.contains("holds 2 rows, and no 3 in a row"), "{short}");
    assert!(table("ax,ay,state\n1,1,rest\n", &schema).unwrap_err().contains("no column `person`"));
}

#[test]
fn toml_and_bytes_there_and_back() {
    let schema = schema();
    let text = toml::to_string(&SchemaText::from(&schema)).unwrap();
    let again: SchemaText = toml::from_str(&text).unwrap();
    assert_eq!(again.schema().unwrap(), schema);
    let bytes = schema.encode().unwrap();
    assert_eq!(Schema::decode(&bytes).as_ref(), Ok(&schema));
    (0..bytes.len()).for_each(|end| assert!(Schema::decode(&bytes[..end]).is_err(), "{end}"));
    assert_eq!(Schema::decode(&[9]), Err(DecodeError::Version(9)));
    assert_eq!(Schema::decode(&[&bytes[..], &[0]].concat()), Err(DecodeError::Damaged));
    let digest = schema.digest().unwrap();
    assert_eq!(digest.to_string(), "72b18e9affe68059", "the compact form has changed; raise its version");
    let mut other = schema.clone();
    other.columns.swap(0, 1);
    assert_ne!(other.digest().unwrap(), digest);
}

#[test]
fn contradictions_are_refused() {
    let error = |columns: &str, task: &str| {
        let text = format!("[data]\ntask = \"{task}\"\ncolumns = [{columns}]");
        Schema::from_toml(&text).unwrap_err().to_string()
    };
    let x = "{ name = \"x\", type = \"number\" }";
    let y = "{ name = \"y\", type = \"label\", classes = [\"a\", \"b\", \"c\"] }";
    let both = |more: &str| format!("{x}, {y}, {more}");
    for (found, expected) in [
        (error(x, "classification"), "classification needs exactly one column of type `label`, there are 0"),
        (error(y, "classification"), "the model has no inputs"),
        (error(&both(y), "classification"), "two columns are called `y`"),
        (error(&both(""), "binary"), "column `y` lists 3 classes, needed are 2"),
        (error(&both(""), "regression"), "column `y` is a label, which regression does not use"),
        (error(x, "regression"), "needs a column of type `target`"),
        (
            error(&both("{ name = \"z\", type = \"category\", levels = [] }"), "classification"),
            "lists 0 levels",
        ),
        (
            error(&both("{ name = \"z\", type = \"category\" }"), "classification"),
            "column `z` is a category and needs `levels`",
        ),
        (
            error(&both("{ name = \"z\", type = \"number\", levels = [\"a\"] }"), "classification"),
            "is a number and takes no `levels`",
        ),
        (
            error(&both("{ name = \"z\", type = \"category\", levels = [\"a\", \"a\"] }"), "classification"),
            "lists `a` twice",
        ),
        (
            error(&both("{ name = \"z\", type = \"category\", levels = [\"a\", \"na\"] }"), "classification"),
            "stands for a missing value",
        ),
        (
            error(
                &both("{ name = \"z\", type = \"category\", levels = [\"a\"], missing = \"mean\" }"),
                "classification",
            ),
            "column `z` cannot replace",
        ),
        (
            error(
                &both("{ name = \"z\", type = \"number\", scaling = { mean = 1, deviation = 0 } }"),
                "classification",
            ),
            "a deviation above 0",
        ),
        (
            error(
                &both("{ name = \"z\", type = \"number\", scaling = { min = 1, max = 1 } }"),
                "classification",
            ),
            "`max` above `min`",
        ),
        (
            error(&both("{ name = \"z\", type = \"number\", scalling = 1 }"), "classification"),
            "unknown field `scalling`",
        ),
        (
            error(&both("{ name = \"z\", type = \"number\", scaling = \"flet\" }"), "classification"),
            "`none`, `fleet`",
        ),
        (error(&both("{ name = \"z\", type = \"image\" }"), "classification"), "unknown variant `image`"),
    ] {
        assert!(found.contains(expected), "{found}\n{expected}");
    }
    assert!(Schema::from_toml("model = 1").unwrap_err().to_string().contains("there is no table [data]"));
}

#[test]
fn the_fleet_fills_in_scales() {
    let schema = Schema::from_toml(
        r#"data = { task = "regression", columns = [{ name = "x", type = "number", scaling = "fleet" },
            { name = "z", type = "number" }, { name = "y", type = "target", scaling = "fleet" }] }"#,
    )
    .unwrap();
    assert_eq!(schema.fleet_columns().collect::<Vec<_>>(), ["x", "y"]);
    let resolved = schema.with_scales(&[(1.0, 2.0), (3.0, 4.0)]).unwrap();
    assert_eq!(resolved.columns[0].kind.scaling(), Some(Scaling::Standard { mean: 1.0, deviation: 2.0 }));
    assert_eq!(resolved.columns[2].kind.scaling(), Some(Scaling::Standard { mean: 3.0, deviation: 4.0 }));
    assert_eq!(resolved.fleet_columns().count(), 0);
    assert_eq!(schema.with_scales(&[(1.0, 2.0)]), None);
    assert_eq!(schema.with_scales(&[(1.0, 2.0), (3.0, 4.0), (5.0, 6.0)]), None);
    assert_eq!(schema.with_scales(&[(1.0, 2.0), (3.0, 0.0)]), None);
}

#[test]
fn a_survey_lists_all_that_does_not_fit() {
    let schema = schema();
    let text = "age,height,work,sex,state\n30,1,office,f,idle\n50,?,field,m,busy\nx,1,office,f,idle\n1,1,office,f,boken\n";
    let found = with_file(text, |path| survey(path, &schema, Targets::Needed).unwrap());
    assert_eq!((found.rows, found.misfits, found.samples), (4, 2, 0));
    assert_eq!(found.findings.iter().map(|finding| finding.line).collect::<Vec<_>>(), [4, 5]);
    assert!(found.findings[1].problem.contains("did you mean `broken`?"));
    let range = found.columns[0].range.unwrap();
    assert_eq!((range.min, range.max, range.mean, range.deviation), (30.0, 50.0, 40.0, 10.0));
    assert_eq!(found.columns[1].missing, 1);
    let counts: Vec<usize> = found.columns[5].counts.iter().map(|(_, count)| *count).collect();
    assert_eq!(counts, [1, 1, 0]);
    let good = with_file("age,height,work,sex,state\n30,1,office,f,idle\n", |path| {
        survey(path, &schema, Targets::Needed).unwrap()
    });
    assert_eq!((good.misfits, good.samples), (0, 1));
}

#[test]
fn the_fleet_is_told_the_moments_of_a_column() {
    let schema = Schema::from_toml(
        r#"data = { task = "regression", columns = [
            { name = "x", type = "number", missing = "mean", scaling = "fleet" }, { name = "z", type = "number" },
            { name = "y", type = "target", scaling = "fleet" }] }"#,
    )
    .unwrap();
    let moments =
        |text: &str| with_file(text, |path| fleet_moments(path, &schema).map_err(|error| error.to_string()));
    assert_eq!(moments("x,z,y\n1,5,10\n?,5,20\n3,5,30\n").unwrap()[0], (2.0, 1.0));
    assert_eq!(moments("x,z,y\n1,5,10\n3,5,30\n").unwrap(), [(2.0, 1.0), (20.0, 10.0)]);
    assert!(moments("x,z,y\n1,5,no\n").unwrap_err().contains("column 3 (`y`) `no` is not a number"));
    assert!(moments("x,z,y\n?,5,1\n").unwrap_err().contains("column `x` has no value at all"));
}

fn propose(text: &str, options: &ProposeOptions) -> Result<Proposal, String> {
    with_file(text, |path| Schema::propose(path, options).map_err(|error| error.to_string()))
}

#[test]
fn a_proposal_reads_the_file_it_was_made_from() {
    let text = ",age,city,note,state\n0,30,Köln,a b,idle\n1,?,Bonn,,busy\n2,50,?,\"c, \"\"d\"\"\",idle\n";
    let proposal = propose(text, &ProposeOptions::default()).unwrap();
    let toml = proposal.toml().unwrap();
    assert_eq!(
        toml,
        r#"# 3 samples. The model needs 7 inputs and 2 classes.
# A missing value is one of "", "?", "NA", "N/A", "nan".
[data]
task = "classification"
columns = [
  { name = "", type = "ignored" },  # numbers the rows
  { name = "age", type = "number", missing = "mean", scaling = { mean = 40.0, deviation = 10.0 } },  # 30 to 50; 1 of 3 missing
  { name = "city", type = "category", levels = ["Bonn", "Köln", "unknown"], missing = { constant = "unknown" } },  # 1 of 3 missing
  { name = "note", type = "category", levels = ["a b", 'c, "d"', "unknown"], missing = { constant = "unknown" } },  # 1 of 3 missing
  { name = "state", type = "label", classes = ["busy", "idle"] },
]
"#
    );
    let schema = Schema::from_toml(&toml).unwrap();
    assert_eq!(schema, proposal.schema);
    let samples = samples(text, &schema);
    assert_eq!(samples.labels(), [1, 0, 1]);
    assert_eq!(samples.row(1), Some(&[0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0][..]));
}

#[test]
fn proposals_find_header_and_task() {
    let task = |text: &str| propose(text, &ProposeOptions::default()).unwrap().schema;
    let header = |text: &str| task(text).header;
    assert!(header("a,b\n1,2\n3,4\n"));
    assert!(header("0,1,label\n1,2,x\n3,4,y\n"), "pandas");
    assert!(!header("1,2\n3,4\n"));
    assert!(!header("39, State-gov, <=50K\n50, Private, >50K\n"), "a sample with words");
    assert!(!header("?,2,x\n3,4,y\n"), "a sample with a gap");
    assert_eq!(task("a,b\n1,2.5\n3,4\n").task, Task::Regression);
    assert_eq!(task("a,b\n1,2\n3,4\n").classes(), ["2", "4"]);
    assert_eq!(task("a,b\n1,10\n3,9\n3,10\n").classes(), ["9", "10"], "by size, not by letters");
    let options = ProposeOptions { label: Some("a".into()), task: Some(Task::Binary), header: None };
    let schema = propose("a,b\nno,2\nyes,4\n", &options).unwrap().schema;
    assert_eq!((schema.outputs(), schema.classes()), (1, &["no".to_owned(), "yes".to_owned()][..]));
    let wrong = ProposeOptions { label: Some("c".into()), ..ProposeOptions::default() };
    assert!(
        propose("a,b\n1,2\n", &wrong).unwrap_err().contains("there is no column `c`; its columns are a, b")
    );
}

/// Samples without a header began with words, and the first one was taken for the names of columns.
#[test]
fn a_sample_is_not_taken_for_a_header() {
    let lines = "1,press,idle\n2,lathe,busy\n3,press,idle\n";
    let error = propose(lines, &ProposeOptions::default()).unwrap_err();
    assert!(
        error.contains("data.csv:1: the first line may be a header") && error.contains("`press`"),
        "{error}"
    );
    assert!(error.contains("--header false"), "{error}");
    let rows = |header| {
        let options = ProposeOptions { header: Some(header), ..ProposeOptions::default() };
        propose(lines, &options).unwrap().rows
    };
    assert_eq!((rows(false), rows(true)), (3, 2));
    // Numbers as names may be values, too.
    assert_eq!(propose("0,1,state\n1,1,a\n0,0,b\n", &ProposeOptions::default()).unwrap().rows, 2);
}

/// Numbers with decimal commas became categories, or were ignored where there were many.
#[test]
fn decimal_commas_are_no_words() {
    let error = propose("x;state\n\"1,5\";a\n2,5;b\n", &ProposeOptions::default()).unwrap_err();
    assert!(
        error.contains("data.csv:2: column `x` has numbers with a decimal comma, such as `1,5`"),
        "{error}"
    );
    let rows: String = (0..200).map(|row| format!("{row};{},5\n", row + 1)).collect();
    let error = propose(&format!("x;y\n{rows}"), &ProposeOptions::default()).unwrap_err();
    assert!(error.contains("column `y`"), "{error}");
}

/// One mistake in a column of many numbers made it a column that is ignored.
#[test]
fn a_mistake_among_numbers_leaves_a_column_of_numbers() {
    let rows: String = (0..200)
        .map(|row| match row {
            70 => "n/k,a\n".to_owned(),
            _ => format!("{row}.5,{}\n", if row < 100 { "a" } else { "b" }),
        })
        .collect();
    let proposal = propose(&format!("x,state\n{rows}"), &ProposeOptions::default()).unwrap();
    assert!(matches!(proposal.schema.columns[0].kind, Kind::Number { .. }), "{:?}", proposal.schema);
    assert!(
        proposal.remarks[0].contains("1 no number, such as \"n/k\" in line 72"),
        "{:?}",
        proposal.remarks
    );
}

/// A word that only one file has was refused on its device.
#[test]
fn a_proposal_from_several_files_knows_the_words_of_all() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        fs::write(dir.path().join(name), text).unwrap();
        dir.path().join(name)
    };
    let (one, two) = (write("one.csv", "x,c,y\n1,a,no\n2,b,yes\n"), write("two.csv", "y;x;c\nrare;9;z\n"));
    let propose = |paths: &[&Path]| {
        Schema::propose_from(paths, &ProposeOptions::default()).map_err(|error| error.to_string())
    };
    let proposal = propose(&[&one, &two]).unwrap();
    assert_eq!(
        (proposal.rows, proposal.schema.classes()),
        (3, &["no", "rare", "yes"].map(str::to_owned)[..])
    );
    assert_eq!(proposal.schema.inputs(), 1 + 3);
    assert_eq!(read(&two, &proposal.schema, Targets::Needed).unwrap().labels, [1]);
    let other = write("other.csv", "x,d,y\n1,a,no\n");
    assert!(propose(&[&one, &other]).unwrap_err().contains("other.csv:1: has no column `c`"));
    let wider = write("wider.csv", "x,c,y,z\n1,a,no,2\n");
    assert!(
        propose(&[&one, &wider]).unwrap_err().contains("wider.csv:1: has 4 columns, the first file has 3")
    );
    let empty = write("empty.csv", "x,c,y\n");
    assert!(propose(&[&one, &empty]).unwrap_err().contains("empty.csv: holds no samples"));
}

/// Dates and names of a short file became categories, whose levels no other file has.
#[test]
fn dates_and_names_are_no_categories() {
    let rows: String = (1..=20)
        .map(|row| {
            let state = ["idle", "busy", ""][row % 3];
            format!("2024-03-{row:02} 10:{row},badge {row},{},{state}\n", ["lathe", "mill"][row % 2])
        })
        .collect();
    let proposal = propose(&format!("at,who,machine,state\n{rows}"), &ProposeOptions::default()).unwrap();
    let kinds: Vec<&str> = proposal.schema.columns.iter().map(|column| column.kind.word()).collect();
    assert_eq!(kinds, ["ignored", "ignored", "category", "label"]);
    let remarks = &proposal.remarks;
    assert!(
        remarks[0].contains("dates or times") && remarks[1].contains("20 different texts"),
        "{remarks:?}"
    );
    assert_eq!(remarks[3], "7 of 20 missing: remove these lines before training");
}

/// Without a scale, a gap got the mean of the file it was in: one row to predict has none, and two devices had different ones.
#[test]
fn a_proposed_mean_does_not_depend_on_the_file() {
    let proposal = propose("x,c,state\n0.5,2,a\n,,b\n1.5,2,a\n", &ProposeOptions::default()).unwrap();
    let schema = proposal.schema;
    let scaling = Scaling::Standard { mean: 1.0, deviation: 0.5 };
    assert_eq!(schema.columns[0].kind, Kind::Number { missing: Missing::Mean, scaling });
    assert_eq!(
        schema.columns[1].kind,
        Kind::Number { missing: Missing::Constant(2.0), scaling: Scaling::None }
    );
    let row = with_file("x,c\n?,?\n", |path| read(path, &schema, Targets::Optional).unwrap());
    assert_eq!(row.features, [0.0, 2.0]);
}

#[test]
fn arrays_and_images_get_no_proposal() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.npz");
    fs::write(&file, b"PK").unwrap();
    for path in [dir.path(), &file] {
        let error = Schema::propose(path, &ProposeOptions::default()).unwrap_err().to_string();
        assert!(error.contains("for CSV files only"), "{error}");
    }
    let plain = dir.path().join("samples");
    fs::write(&plain, "x,y\n1,a\n2,b\n").unwrap();
    assert_eq!(Schema::propose(&plain, &ProposeOptions::default()).unwrap().rows, 2);
}

mod arrays {
    use common::npy::{Array, Data, write_archive};

    use super::*;

    fn schema() -> Schema {
        Schema::from_toml(
            r#"data = { task = "classification", columns = [
                { name = "x", type = "array", shape = [1, 2], scaling = { min = 0, max = 2 } },
                { name = "t", type = "number" },
                { name = "y", type = "label", classes = ["cat", "dog"] } ] }"#,
        )
        .unwrap()
    }

    fn load(arrays: &[(&str, Array)], targets: Targets) -> Result<Table, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data.npz");
        let arrays: Vec<_> = arrays.iter().map(|(name, array)| ((*name).to_owned(), array.clone())).collect();
        fs::write(&path, write_archive(&arrays).unwrap()).unwrap();
        read_any(&path, &schema(), targets).map_err(|error| error.to_string())
    }

    fn array(shape: &[usize], data: Data) -> Array {
        Array::new(shape, data).unwrap()
    }

    #[test]
    fn arrays_are_found_by_name() {
        let x = array(&[2, 1, 2], Data::F32(vec![2.0, 1.0, 0.0, 4.0]));
        let t = array(&[2], Data::F64(vec![7.0, 8.0]));
        let y = array(&[2, 1], Data::I64(vec![1, 0]));
        let table = load(&[("y", y.clone()), ("t", t.clone()), ("x", x.clone())], Targets::Needed).unwrap();
        assert_eq!((table.inputs, table.labels.as_slice()), (3, &[1, 0][..]));
        assert_eq!(table.features, [1.0, 0.5, 7.0, 0.0, 2.0, 8.0]);
        let unlabelled = load(&[("t", t.clone()), ("x", x.clone())], Targets::Optional).unwrap();
        assert_eq!((unlabelled.len(), unlabelled.labels.len()), (2, 0));
        let error = |arrays: &[(&str, Array)]| load(arrays, Targets::Needed).unwrap_err();
        let with = |y: Array| error(&[("x", x.clone()), ("t", t.clone()), ("y", y)]);
        assert!(error(&[("x", x.clone()), ("t", t.clone())]).contains("has no array `y`"));
        assert!(
            error(&[("x", x.clone()), ("t", t.clone()), ("Y", y)])
                .contains("array `Y` is not in the schema; did you mean `y`?")
        );
        assert!(
            with(array(&[2], Data::I64(vec![0, 2])))
                .contains("array `y` has 2 at 1, the schema lists 2 from 0")
        );
        assert!(with(array(&[2], Data::F32(vec![0.0, 1.0]))).contains("holds no whole numbers"));
        assert!(with(array(&[3], Data::I64(vec![0; 3]))).contains("array `y` has 3 samples"));
        assert!(with(array(&[0, 1 << 40, 1 << 40], Data::I64(vec![]))).contains("has 0 samples"));
    }

    #[test]
    fn csv_files_hold_no_arrays() {
        assert!(
            table("x,t,y\n1,2,cat\n", &schema())
                .unwrap_err()
                .contains("column `x` of the schema is an array")
        );
    }

    #[cfg(feature = "images")]
    #[test]
    fn folders_are_the_classes() {
        let schema = Schema::from_toml(
            r#"data = { task = "classification", columns = [{ name = "pixels", type = "array", shape = [1, 1, 2] },
                { name = "animal", type = "label", classes = ["dog", "cat"] }] }"#,
        )
        .unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut image = Vec::new();
        let mut encoder = png::Encoder::new(&mut image, 2, 1);
        encoder.set_color(png::ColorType::Grayscale);
        encoder.write_header().unwrap().write_image_data(&[255, 0]).unwrap();
        for class in ["cat", "dog"] {
            fs::create_dir(dir.path().join(class)).unwrap();
            fs::write(dir.path().join(class).join("1.png"), &image).unwrap();
        }
        let table = read_any(dir.path(), &schema, Targets::Needed).unwrap();
        assert_eq!((table.labels, table.features), (vec![1, 0], vec![1.0, 0.0, 1.0, 0.0]));
        fs::create_dir(dir.path().join("dogs")).unwrap();
        let error = read_any(dir.path(), &schema, Targets::Needed).unwrap_err().to_string();
        assert!(
            error.contains("dogs: is none of the 2 classes in the schema; did you mean `dog`?"),
            "{error}"
        );
    }
}
