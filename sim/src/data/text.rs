//! Predicts the next character of Shakespeare, by speaking role.
//!
//! | set | sample | target | alphabet |
//! |---|---|---|---|
//! | sequences of roles | 50 characters, one sequence after the other | the next character after each of them | 86 |
//! | LEAF windows | 80 characters | the one that follows | 80 |
//!
//! Characters outside an alphabet are read as a blank. The first 80 % of a role's text are for training.

use std::path::Path;

use super::{
    DataSet, Features, Records, SetError,
    leaf::{self, Cell, Leaf, User},
};

/// The 80 characters of LEAF.
const LEAF: &str = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}";
/// The 86 characters of TensorFlow's federated Shakespeare, in its order.
const TENSORFLOW: &str =
    "dhlptx@DHLPTX $(,048cgkoswCGKOSW[_#'/37;?bfjnrvzBFJNRVZ\"&*.26:\naeimquyAEIMQUY]!%)-159\r";
/// Length of a sequence in characters.
const STEPS: usize = 50;

/// Maps characters to tokens.
struct Alphabet {
    letters: &'static str,
    /// The token of every ASCII character, to avoid a search per character.
    table: [u8; 128],
    blank: u8,
}

impl Alphabet {
    fn new(letters: &'static str) -> Self {
        let find = |wanted| letters.chars().position(|letter| letter == wanted);
        let blank = find(' ').expect("every alphabet has a blank");
        let token = |code| find(char::from(code as u8)).unwrap_or(blank) as u8;
        Self { letters, table: std::array::from_fn(token), blank: blank as u8 }
    }

    fn len(&self) -> u32 {
        self.letters.len() as u32
    }

    fn encode(&self, text: &str) -> Vec<u8> {
        let token = |letter| self.table.get(letter as usize).copied().unwrap_or(self.blank);
        text.chars().map(token).collect()
    }

    fn names(&self) -> Vec<String> {
        self.letters.chars().map(|letter| letter.escape_default().to_string()).collect()
    }
}

/// Loads a file with the whole text of every role.
pub fn sequences(name: &str, roles: &Path) -> Result<DataSet, SetError> {
    let leaf = leaf::read(roles)?;
    let alphabet = Alphabet::new(TENSORFLOW);
    let mut parts = [RecordsBuilder::default(), RecordsBuilder::default()];
    let mut names = Vec::new();
    for (role, user) in users(&leaf) {
        if user.raw.is_empty() {
            return Err(SetError::format(roles, format!("role `{role}` has no text")));
        }
        let tokens = alphabet.encode(&user.raw);
        let (train, test) = tokens.split_at(tokens.len() * 4 / 5);
        // A role with too little text for training is not a client.
        if train.len() <= STEPS {
            continue;
        }
        for (part, text) in parts.iter_mut().zip([train, test]) {
            part.add_sequences(text, names.len() as u32);
        }
        names.push(role.clone());
    }
    let [train, test] = parts.map(|part| part.records(STEPS, STEPS));
    finish(name, &alphabet, STEPS, [train?, test?], names)
}

/// Loads LEAF's files of windows.
pub fn windows(name: &str, train: &Path, test: &Path) -> Result<DataSet, SetError> {
    let files = [(train, leaf::read(train)?), (test, leaf::read(test)?)];
    let alphabet = Alphabet::new(LEAF);
    let names = leaf::people(files.iter().map(|(_, leaf)| leaf));
    let length = files.iter().flat_map(|(_, leaf)| users(leaf)).find_map(|(_, user)| match user.x.first() {
        Some(Cell::Text(text)) => Some(text.chars().count()),
        _ => None,
    });
    let length = length.ok_or_else(|| SetError::format(train, "holds no text"))?;
    let [train, test] = files.map(|(path, leaf)| -> Result<Records, SetError> {
        let mut part = RecordsBuilder::default();
        for (role, user) in users(&leaf) {
            let client = names.partition_point(|other| other < role) as u32;
            for (index, (x, y)) in user.x.iter().zip(&user.y).enumerate() {
                let wrong =
                    |what: &str| SetError::format(path, format!("sample {index} of role `{role}` {what}"));
                let (Cell::Text(x), Cell::Text(y)) = (x, y) else { return Err(wrong("is not text")) };
                let (window, next) = (alphabet.encode(x), alphabet.encode(y));
                let (true, [next]) = (window.len() == length, &*next) else {
                    return Err(wrong(&format!("is not {length} characters and the next one")));
                };
                part.tokens.extend(window);
                part.labels.push((*next).into());
                part.clients.push(client);
            }
        }
        part.records(length, 1)
    });
    finish(name, &alphabet, length, [train?, test?], names)
}

fn users(leaf: &Leaf) -> impl Iterator<Item = (&String, &User)> {
    leaf.users.iter().filter_map(|name| Some((name, leaf.user_data.get(name)?)))
}

#[derive(Default)]
struct RecordsBuilder {
    tokens: Vec<u8>,
    labels: Vec<u32>,
    clients: Vec<u32>,
}

impl RecordsBuilder {
    /// Adds all complete sequences.
    fn add_sequences(&mut self, text: &[u8], client: u32) {
        let ([inputs @ .., _], [_, next @ ..]) = (text, text) else { return };
        for (input, next) in inputs.chunks_exact(STEPS).zip(next.chunks_exact(STEPS)) {
            self.tokens.extend_from_slice(input);
            self.labels.extend(next.iter().map(|&token| u32::from(token)));
            self.clients.push(client);
        }
    }

    fn records(self, inputs: usize, targets: usize) -> Result<Records, SetError> {
        let features = Features::Bytes { data: self.tokens, scale: 1.0 };
        Records::new(features, self.labels, inputs, targets)
            .and_then(|records| records.with_clients(self.clients))
            .map_err(|source| SetError::Data { name: "shakespeare".into(), source })
    }
}

fn finish(
    name: &str,
    alphabet: &Alphabet,
    length: usize,
    [train, test]: [Records; 2],
    clients: Vec<String>,
) -> Result<DataSet, SetError> {
    let set = DataSet::new(name, vec![length], alphabet.len(), train, test);
    let set = set.and_then(|set| set.with_client_names(clients));
    let set = set.map_err(|source| SetError::Data { name: name.into(), source })?;
    Ok(DataSet { tokens: Some(alphabet.len()), class_names: alphabet.names(), ..set })
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write};

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    #[test]
    fn alphabets_have_their_published_sizes_and_every_letter_once() {
        for (alphabet, size) in [(LEAF, 80), (TENSORFLOW, 86)] {
            let mut letters: Vec<char> = alphabet.chars().collect();
            letters.sort_unstable();
            letters.dedup();
            assert_eq!((letters.len(), alphabet.len()), (size, size));
        }
        let alphabet = Alphabet::new(LEAF);
        assert_eq!(alphabet.encode("\n }é~"), [0, 1, 79, 1, 1]);
    }

    #[test]
    fn sequences_predict_the_next_character_everywhere() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("roles.json.gz");
        let text: String = (0..200).map(|i| char::from(b'a' + i % 26)).collect();
        let json = format!(
            r#"{{"users":["B","A"],"num_samples":[200,9],"user_data":{{"A":{{"raw":"too short"}},"B":{{"raw":"{text}"}}}}}}"#
        );
        let mut encoder = GzEncoder::new(fs::File::create(&path).unwrap(), Compression::fast());
        encoder.write_all(json.as_bytes()).unwrap();
        encoder.finish().unwrap();
        let set = sequences("x", &path).unwrap();
        // 160 characters to train on: three sequences and the character after the last.
        assert_eq!((set.train.len(), set.test.len(), set.targets(), set.classes), (3, 0, 50, 86));
        assert_eq!((&*set.client_names, set.tokens), (&["B".to_owned()][..], Some(86)));
        let mut row = [0.0; 50];
        set.train.read(1, &mut row).unwrap();
        for position in 0..49 {
            assert_eq!(set.train.label(1, position), Ok(row[position as usize + 1] as u32));
        }
        set.train.read(2, &mut row).unwrap();
        assert_eq!(set.train.label(1, 49), Ok(row[0] as u32));
        assert_eq!(set.class_name(row[0] as u32), "w", "character 100 of the alphabet's repetition");
    }

    #[test]
    fn windows_predict_one_character() {
        let dir = tempfile::tempdir().unwrap();
        let [train, test] = ["train", "test"].map(|name| dir.path().join(name));
        fs::write(&train, r#"{"users":["R"],"user_data":{"R":{"x":["abc","bcd"],"y":["d","e"]}}}"#).unwrap();
        fs::write(&test, r#"{"users":["Q"],"user_data":{"Q":{"x":["   "],"y":["\n"]}}}"#).unwrap();
        let set = windows("x", &train, &test).unwrap();
        assert_eq!((set.train.len(), set.inputs(), set.targets(), set.classes), (2, 3, 1, 80));
        assert_eq!((set.train.clients(), set.test.labels()), (&[1, 1][..], &[0][..]));
        assert_eq!(set.class_name(set.train.labels()[0]), "d");
        for (json, what) in [
            (r#"{"users":["R"],"user_data":{"R":{"x":["ab"],"y":["d"]}}}"#, "sample 0 of role `Q`"),
            (r#"{"users":["R"],"user_data":{"R":{"x":[[1]],"y":["d"]}}}"#, "is not text"),
            (r#"{"users":["R"],"user_data":{"R":{"x":["abc"],"y":["de"]}}}"#, "and the next one"),
            ("{", "line 1"),
        ] {
            fs::write(&train, json).unwrap();
            let error = windows("x", &train, &test).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
        let error = sequences("x", &test).unwrap_err().to_string();
        assert!(error.contains("role `Q` has no text"), "{error}");
    }
}
