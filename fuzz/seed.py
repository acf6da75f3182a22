#!/usr/bin/env python3
"""Writes the committed corpus, fuzz/corpus/<target>/*, from what other tests keep.

Run it from anywhere after a change of the protocol or of a format. `aggregator` must be built
(target/ci/aggregator), because credentials are made by it.
"""
import gzip, io, json, pathlib, shutil, struct, subprocess, tarfile, tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORPUS = ROOT / "fuzz" / "corpus"


def seed(target, name, content):
    path = CORPUS / target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def frames():
    lines = (ROOT / "common/tests/golden/frames.txt").read_text().splitlines()[1:]
    conversation = b""
    for line in lines:
        name, text = line.split()
        frame = bytes.fromhex(text)
        seed("frames", name, frame)
        if frame[1] == 0:
            seed("messages", name, frame[2:-4])
        if name.startswith("ToDevice") and len(frame) < 256:
            inner = frame[1:-4]
            conversation += bytes([len(inner)]) + inner
            seed("session", name, bytes([len(inner)]) + inner)
    seed("session", "all", conversation)


def transfers():
    for codec in range(3):
        head = struct.pack("<IHHBB", 9640, 1024, 4096, codec, 0)
        fetch = bytes([4, 7, 0, 0, 0, 0])
        chunk = bytes([3, 7, 0, 0, 0, 0])
        late = bytes([2, 7, 5, 0, 0, 0])
        seed("transfers", f"codec-{codec}", head + fetch + chunk * 5 + late + chunk * 12)
        seed("transfers", f"lies-{codec}", head + bytes([0, 7, 255, 255, 255, 255, 1, 7, 0, 4, 0, 0]) + chunk)


def models():
    fixtures = ROOT / "models/tests/fixtures"
    for path in sorted(fixtures.glob("*.onnx")):
        if path.stat().st_size < 3500:
            seed("onnx", path.name, path.read_bytes())
    for path in sorted(fixtures.glob("*.np[yz]")):
        if path.stat().st_size < 1500:
            seed("npy", path.name, path.read_bytes())


def config():
    seed("config", "default.toml", (ROOT / "aggregator/src/default.toml").read_bytes())
    seed("config", "short.toml", "run = { rounds = 30, min_devices = 5 }\nround = { quorum = 1.0 }\n"
         "wire = { up = \"int8\", error_feedback = true }\nstrategy = { name = \"fedfv\", params = { alpha = 0.1 } }\n"
         "[devices]\ncam-1 = 2\n")


def data():
    csv = "x,sex,y\n1,0,0\n2,1,1\n3.5,1,1\n4,1,0\n"
    seed("data", "csv", "c" + csv)
    seed("data", "csv.gz", b"c" + gzip.compress(csv.encode(), mtime=0))
    images = struct.pack(">IIII", 0x803, 2, 2, 2) + bytes(range(8))
    labels = struct.pack(">II", 0x801, 2) + bytes([1, 2])
    # The target divides in the middle, so labels get as many bytes as images.
    seed("data", "idx", b"i" + images + labels + bytes(len(images) - len(labels)))
    seed("data", "idx-even", b"i" + struct.pack(">IIII", 0x803, 1, 1, 1) + b"\x05" + struct.pack(">II", 0x801, 9) + bytes(9))
    seed("data", "arff", "a% made\n@relation x\n@attribute \"UNIQUE_ID\" numeric\n@attribute \"user\" {1, 2,33}\n"
         "@attribute X0 REAL\n@attribute class {Walking,'Jogging'}\n\n@data\n1,33,0.5,Walking\n2,1,?,Jogging\n")
    leaf = {"users": ["w2", "w1"], "num_samples": [2, 1],
            "user_data": {"w1": {"x": [[0.5, 1]], "y": [3]}, "w2": {"x": ["to be", "or"], "y": ["n", 4]}}}
    seed("data", "leaf", "l" + json.dumps(leaf))
    seed("data", "cifar", b"b" + bytes([3]) + bytes(3072))
    adult = ("39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, "
             "United-States, <=50K\n50, Private, 83311, Masters, 13, Divorced, Sales, Wife, Black, Female, 0, 0, 13, ?, >50K.\n")
    seed("data", "table", "t" + adult)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        text = ("x_acc,y_acc,z_acc,label\n" + "1,2,9.8,WALKING\n" * 130).encode()
        info = tarfile.TarInfo("d/s01_01_sp.csv")
        info.size = len(text)
        tar.addfile(info, io.BytesIO(text))
    seed("data", "motion.tar", b"m" + archive.getvalue()[: 512 + 2560 + 1024])


def credentials():
    with tempfile.TemporaryDirectory() as dir:
        program = ROOT / "target/ci/aggregator"
        run = lambda *args: subprocess.run([program, *args], check=True, stdout=subprocess.DEVNULL)
        run("init", f"{dir}/gw")
        run("enroll", "--dir", f"{dir}/gw", "--out", dir, "cam-1")
        seed("credentials", "bundle.pem", pathlib.Path(dir, "cam-1.pem").read_bytes())
        seed("credentials", "authority.pem", pathlib.Path(dir, "gw/identity/ca.crt").read_bytes())
    seed("credentials", "name", "cam-1")


def rounds():
    device = lambda id, tier, weight, loss, update: {
        "id": id, "tier": tier, "samples": 1, "weight": weight, "loss_before": loss, "loss_after": 0.5, "update": update}
    file = {"format": "fairtier-round", "version": 1, "round": 7, "lr": 0.1, "parameters": [1.0, -0.5, 0.25],
            "tiers": [{"name": "full", "weight": 0.5}, {"name": "half", "indices": [0, 1], "weight": 0.5}],
            "layers": [1, 2],
            "devices": [device("0", 0, 0.25, 0.5, [-0.1, 0.05, 0.02]), device("2", 1, 0.5, 2.0, [-0.2, 0.1])]}
    seed("rounds", "worked.json", json.dumps(file))
    seed("rounds", "strategy.json", json.dumps({**file, "strategy": {"name": "fedavg", "params": {}}, "state": None}))
    seed("rounds", "npy.json", json.dumps({**file, "parameters": {"npy": "a/b.npy"}}))


def records():
    # postcard: run id, digest, parameters, slices, configuration; then a round with one device.
    seed("records", "run", bytes([7, 5, 200, 1, 2, 100, 50, 3]) + b"a=1")
    seed("records", "round", bytes([1, 1, 5]) + b"cam-1" + bytes([0, 1, 1, 0, 1, 5]) + b"cam-1")
    seed("records", "device", bytes([5]) + b"cam-1" + bytes([2, 100, 100, 1, 1, 10, 2, 64, 10, 0]))


if __name__ == "__main__":
    shutil.rmtree(CORPUS, ignore_errors=True)
    for make in (frames, transfers, models, config, data, credentials, rounds, records):
        make()
