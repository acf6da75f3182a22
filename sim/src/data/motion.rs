//! Accelerometer windows of people who wear a phone and a watch (GeoTec's sp-sw-har).
//!
//! ```text
//! DATA.tar(.xz)   .../sNN_EE_{sp,sw}.csv: person NN, execution EE, phone or watch
//! file            header, then x_acc, y_acc, z_acc, ..., label, about 100 times a second
//! ```
//! A sample is a window of 128 readings of 3 axes (axis after axis, in g), one window every 64 readings. Its label is
//! the most frequent one of its readings. A client is one device of one person. The last fifth of its recordings is
//! for test, so that no window of a test recording is trained on. The group is phone or watch.

use std::{collections::BTreeMap, io::Read, path::Path};

use tar::Archive;
use trainer::data::load::LoadError;

use super::{DataSet, Features, Records, SetError, source};

const WINDOW: usize = 128;
const STEP: usize = 64;
const AXES: [&str; 3] = ["x_acc", "y_acc", "z_acc"];
const LABELS: [&str; 5] = ["SEATED", "STANDING_UP", "WALKING", "TURNING", "SITTING_DOWN"];
const DEVICES: [(&str, &str); 2] = [("sp", "phone"), ("sw", "watch")];
/// m/s² in one g.
const GRAVITY: f32 = 9.806_65;

/// Reads the recordings of a tar archive, plain or compressed, as windows of 128 readings.
pub fn load(name: &str, archive: &Path) -> Result<DataSet, SetError> {
    let bytes = source::open(archive)?.bytes()?;
    let failed = |source| LoadError::Read { path: archive.into(), source };
    let mut recordings: BTreeMap<(String, usize, String), Recording> = BTreeMap::new();
    for entry in Archive::new(&*bytes).entries().map_err(failed)? {
        let mut entry = entry.map_err(failed)?;
        let path = entry.path().map_err(failed)?.into_owned();
        let Some((person, device, execution)) = who(&path) else { continue };
        let mut text = String::new();
        entry.read_to_string(&mut text).map_err(failed)?;
        let inside = archive.join(&path);
        recordings.insert((person, device, execution), Recording::parse(&text, &inside)?);
    }
    if recordings.is_empty() {
        return Err(SetError::format(archive, "holds no recordings named like s01_01_sp.csv"));
    }
    let mut clients: BTreeMap<(String, usize), Vec<Recording>> = BTreeMap::new();
    for ((person, device, _), recording) in recordings {
        clients.entry((person, device)).or_default().push(recording);
    }
    let (mut train, mut test) = (RecordsBuilder::default(), RecordsBuilder::default());
    for (client, ((_, device), recordings)) in clients.iter().enumerate() {
        let held_out = if recordings.len() > 1 { (recordings.len() / 5).max(1) } else { 0 };
        for (index, recording) in recordings.iter().enumerate() {
            let part = if index + held_out < recordings.len() { &mut train } else { &mut test };
            part.add(recording, *device as u8, client as u32);
        }
    }
    let names = clients.keys().map(|(person, device)| format!("{person} {}", DEVICES[*device].1));
    let names: Vec<String> = names.collect();
    let set = train.records().and_then(|train| {
        DataSet::new(name, vec![AXES.len(), WINDOW], LABELS.len() as u32, train, test.records()?)?
            .with_group_names(DEVICES.map(|(_, name)| name.to_owned()).to_vec())?
            .with_client_names(names)
    });
    let set = set.map_err(|source| SetError::Data { name: name.into(), source })?;
    Ok(set.with_class_names(&["seated", "standing up", "walking", "turning", "sitting down"]))
}

/// Person, device and execution, from the name of a recording.
fn who(path: &Path) -> Option<(String, usize, String)> {
    if path.extension()? != "csv" {
        return None;
    }
    let mut parts = path.file_stem()?.to_str()?.split('_');
    let (person, execution, device) = (parts.next()?, parts.next()?, parts.next()?);
    let device = DEVICES.iter().position(|(short, _)| *short == device)?;
    parts.next().is_none().then(|| (person.to_owned(), device, execution.to_owned()))
}

#[derive(Default)]
struct Recording {
    moments: Vec<[f32; 3]>,
    labels: Vec<u8>,
}

impl Recording {
    fn parse(text: &str, path: &Path) -> Result<Self, SetError> {
        let mut lines = text.lines().enumerate();
        let (_, header) = lines.next().ok_or_else(|| SetError::format(path, "is empty"))?;
        let header: Vec<&str> = header.split(',').map(str::trim).collect();
        let column = |name: &str| {
            let found = header.iter().position(|other| *other == name);
            found.ok_or_else(|| SetError::line(path, 1, format!("has no column `{name}`")))
        };
        let axes = [column(AXES[0])?, column(AXES[1])?, column(AXES[2])?];
        let label = column("label")?;
        let mut recording = Self::default();
        for (number, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
            let wrong = |problem: String| SetError::line(path, number + 1, problem);
            let fields: Vec<&str> = line.split(',').map(str::trim).collect();
            let field = |at: usize, name: &str| {
                fields.get(at).copied().ok_or_else(|| wrong(format!("has no field `{name}`")))
            };
            let mut moment = [0.0; 3];
            for ((out, at), name) in moment.iter_mut().zip(axes).zip(AXES) {
                let value: Option<f32> =
                    field(at, name)?.parse().ok().filter(|value: &f32| value.is_finite());
                *out = value.ok_or_else(|| wrong(format!("`{name}` is not a finite number")))? / GRAVITY;
            }
            let label = field(label, "label")?;
            let known = LABELS.iter().position(|name| *name == label);
            let known = known.ok_or_else(|| wrong(format!("label is not one of {}", LABELS.join(", "))))?;
            recording.moments.push(moment);
            recording.labels.push(known as u8);
        }
        Ok(recording)
    }
}

#[derive(Default)]
struct RecordsBuilder {
    features: Vec<f32>,
    labels: Vec<u32>,
    groups: Vec<u8>,
    clients: Vec<u32>,
}

impl RecordsBuilder {
    fn add(&mut self, recording: &Recording, group: u8, client: u32) {
        let moments = recording.moments.windows(WINDOW).step_by(STEP);
        for (moments, labels) in moments.zip(recording.labels.windows(WINDOW).step_by(STEP)) {
            for axis in 0..AXES.len() {
                self.features.extend(moments.iter().filter_map(|moment| moment.get(axis)));
            }
            self.labels.push(most_frequent(labels));
            self.groups.push(group);
            self.clients.push(client);
        }
    }

    fn records(self) -> Result<Records, trainer::data::DataError> {
        let inputs = AXES.len() * WINDOW;
        Records::new(Features::Floats(self.features), self.labels, inputs, 1)?
            .with_groups(self.groups)?
            .with_clients(self.clients)
    }
}

/// The most frequent label; the first one if several are equally frequent.
fn most_frequent(labels: &[u8]) -> u32 {
    let mut counts = [0; LABELS.len()];
    labels.iter().for_each(|&label| counts[usize::from(label)] += 1);
    let mut most = 0;
    for (label, count) in counts.iter().enumerate() {
        if *count > counts[most] {
            most = label;
        }
    }
    most as u32
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tar::{Builder, Header};

    use super::*;
    use crate::data::source::tests::xz;

    fn archive(files: &[(&str, &str)]) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        for (name, text) in files {
            let mut header = Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_cksum();
            builder.append_data(&mut header, name, text.as_bytes()).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn recording(rows: usize, label: &str) -> String {
        let row = |at: usize| format!("{},0,-9.80665,0,0,0,{at},{label}\n", at as f32 * GRAVITY);
        "x_acc,y_acc,z_acc,x_gyro,y_gyro,z_gyro,timestamp,label\n".to_owned()
            + &(0..rows).map(row).collect::<String>()
    }

    fn read(bytes: &[u8]) -> Result<DataSet, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("DATA.tar");
        fs::write(&path, bytes).unwrap();
        load("x", &path).map_err(|error| error.to_string())
    }

    #[test]
    fn windows_by_person_and_device() {
        let (walk, sit) = (recording(200, "WALKING"), recording(128, "SEATED"));
        let files = archive(&[
            ("DATA/subjects_info.csv", "subject_id\ns01\n"),
            ("DATA/s01/s01_01_sp.csv", &walk),
            ("DATA/s01/s01_02_sp.csv", &sit),
            ("DATA/s01/s01_01_sw.csv", &sit),
        ]);
        let set = read(&xz(&files)).unwrap();
        // 200 readings hold the windows from 0 and from 64.
        assert_eq!((set.train.labels(), set.test.labels()), (&[2, 2, 0][..], &[0][..]));
        assert_eq!((set.train.clients(), set.train.groups()), (&[0, 0, 1][..], &[0, 0, 1][..]));
        assert_eq!(&*set.client_names, ["s01 phone", "s01 watch"]);
        let mut row = [0.0; 384];
        set.train.read(1, &mut row).unwrap();
        assert!((row[0] - 64.0).abs() < 1e-4 && row[128] == 0.0 && (row[256] + 1.0).abs() < 1e-6);
    }

    #[test]
    fn damage_is_reported_with_file_and_line() {
        let one = |text: &str| read(&archive(&[("DATA/s01_01_sp.csv", text)])).unwrap_err();
        let good = recording(2, "WALKING");
        assert!(one(&good.replace("y_acc", "y")).contains("s01_01_sp.csv:1: has no column `y_acc`"));
        assert!(one(&good.replace("WALKING", "FLYING")).contains("s01_01_sp.csv:2: label is not one of"));
        assert!(one(&good.replace("-9.80665", "nan")).contains("s01_01_sp.csv:2: `z_acc`"));
        assert!(one(&(good + "1\n")).contains("s01_01_sp.csv:4: has no field `y_acc`"));
        assert!(read(&archive(&[("a.csv", "")])).unwrap_err().contains("holds no recordings"));
        assert!(read(b"not a tar archive").unwrap_err().contains("DATA.tar"));
        let whole = archive(&[("DATA/s01_01_sp.csv", &recording(200, "WALKING"))]);
        assert!(read(&whole[..2000]).unwrap_err().contains("DATA.tar"));
    }
}
