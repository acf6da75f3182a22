#!/usr/bin/env python3
"""Writes the committed corpus, fuzz/corpus/<target>/*, from what other tests keep.

Run it from anywhere after a change of the protocol or of a format; tests/e2e/fuzz_corpus.rs fails until that was done.
`fairtier` must be built (target/ci/fairtier), because credentials are made by it.
"""
import base64, gzip, io, json, lzma, pathlib, shutil, struct, subprocess, tarfile, tempfile, zipfile, zlib

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


def message(*fields):
    """A protobuf message of numbers, texts and messages, by field number."""
    varint = lambda n: bytes([n]) if n < 128 else bytes([n & 127 | 128]) + varint(n >> 7)
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value % 2**64)
        else:
            value = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def model_in_two_files(location, offset, length, kind=1, classes=3):
    """x[N, 4] -> Gemm with weights in another file -> y, as `fuzz_targets/onnx.rs` has them in its folder."""
    entries = [(13, message((1, key), (2, value))) for key, value in
               (("location", location), ("offset", offset), ("length", length)) if value is not None]
    weight = message((1, classes), (1, 4), (2, kind), (8, "w"), *entries, (14, 1))
    shape = message((1, message((2, "N"))), (1, message((1, 4))))
    tensor = message((1, message((1, 1), (2, shape))))
    turned = message((1, "transB"), (3, 1), (20, 2))
    node = message((1, "x"), (1, "w"), (2, "y"), (3, "fc"), (4, "Gemm"), (5, turned))
    graph = message((1, node), (2, "m"), (5, weight), (11, message((1, "x"), (2, tensor))), (12, message((1, "y"))))
    return message((1, 8), (7, graph), (8, message((2, 18))))


# Names of seeds, and where their weights are. Those that start with "good" are read.
TWO_FILES = {
    "good": ("w", "16", "48"), "good.sub": ("sub/w", None, None), "good.link": ("./inner", "0", "48"),
    "good.double": ("w", "8", "96", 11), "good.half": ("w", "8", "24", 10), "above": ("../secret", "0", "48"),
    "absolute": ("/etc/passwd", "0", "48"), "leak": ("leak", None, None), "up": ("up/secret", "0", None), "zero": ("zero", "0", "48"),
    "loop": ("loop", None, None), "none": ("none", "0", "48"), "nameless": (None, "0", "48"), "short": ("w", "4090", "48"),
    "far": ("w", "18446744073709551615", "48"), "lie": ("w", "0", "4096"), "text": ("w", "-1", "x"),
    "large": ("w", "0", None, 1, 2**40), "strings": ("w", "0", None, 8),
}


def models():
    for name, place in TWO_FILES.items():
        seed("onnx", f"two-files.{name}", model_in_two_files(*place))
        *texts, kind, classes = (*place, *(1, 3)[len(place) - 3:])
        parts = [(text or "").encode() for text in texts] + [bytes([kind]), struct.pack("<qq", classes, 4)]
        seed("weights", name, b"".join(bytes([len(part)]) + part for part in parts))
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
    seed("data", "schema", "sx,c,id,v,sex,y\n1,a,p,1,f,no\n?,b,p,,m,yes\n3.5,,p,2,f,yes\n4,a,q,3,f,no\n")
    seed("data", "proposal", "s,age,city,state\n0,30,Bonn,idle\n1,?,K\u00f6ln,busy\n2,50,NA,idle\n")
    def array(kind, shape, numbers):
        header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
        return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header.encode() + numbers

    labels = ("<i8", "(2,)", struct.pack("<2q", 1, 0))
    members = {"x": array("<f4", "(2, 2)", struct.pack("<4f", 1, 2, 3, 4)), "y": array(*labels)}
    named = members | {"z": array("<f8", "(2,)", struct.pack("<2d", 0.5, -3)), "g": array(*labels)}
    for kind, name, members in (("n", "npz", members), ("z", "npz.schema", named)):
        arrays = io.BytesIO()
        with zipfile.ZipFile(arrays, "w") as file:
            for member, content in members.items():
                file.writestr(zipfile.ZipInfo(f"{member}.npy", (1980, 1, 1, 0, 0, 0)), content)
        seed("data", name, kind.encode() + arrays.getvalue())
    # The target divides in the middle, so both have the same number of bytes.
    pixels = array("|u1", "(2, 1, 2, 2)", bytes(range(8)))
    seed("data", "npy", b"p" + pixels + array("<i4", "(2,)", struct.pack("<2i", 1, 0)))
    seed("data", "npy.schema", b"p" + array("<f4", "(2, 2)", struct.pack("<4f", 1, 2, 3, 4)) + array(*labels))
    chunk = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    picture = lambda width, height, colour, rows, *more: b"\x89PNG\r\n\x1a\n" + b"".join(
        chunk(*part) for part in [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)), *more,
                                  (b"IDAT", zlib.compress(rows)), (b"IEND", b"")])
    seed("data", "png", b"f" + picture(2, 2, 0, bytes([0, 1, 2, 0, 3, 4])))
    seed("data", "png.rgb", b"f" + picture(2, 1, 2, bytes([1, 255, 0, 51, 0, 255, 102])))
    seed("data", "png.palette", b"f" + picture(2, 1, 3, bytes([0, 0, 1]), (b"PLTE", bytes(range(6)))))
    seed("data", "png.large", b"f" + picture(8192, 8192, 2, bytes(6)))
    # Quantisation, frame, a code of one symbol for DC and AC, scan.
    code = lambda table: b"\xff\xc4\0\x14" + bytes([table, 1]) + bytes(16)
    jpeg = lambda frame, height, width: (b"\xff\xd8\xff\xdb\0\x43\0" + bytes([1] * 64) + b"\xff" + frame + b"\0\x0b\x08"
        + struct.pack(">HH", height, width) + b"\1\1\x11\0" + code(0) + code(0x10) + b"\xff\xda\0\x08\1\1\0\0\x3f\0\x3f\xff\xd9")
    seed("data", "jpeg", b"f" + jpeg(b"\xc0", 8, 8))
    seed("data", "jpeg.progressive", b"f" + jpeg(b"\xc2", 8, 8))
    seed("data", "jpeg.large", b"f" + jpeg(b"\xc0", 8192, 8192))
    images = struct.pack(">IIII", 0x803, 2, 2, 2) + bytes(range(8))
    labels = struct.pack(">II", 0x801, 2) + bytes([1, 2])
    # The target divides in the middle, so labels get as many bytes as images.
    seed("data", "idx", b"i" + images + labels + bytes(len(images) - len(labels)))
    seed("data", "idx-even", b"i" + struct.pack(">IIII", 0x803, 1, 1, 1) + b"\x05" + struct.pack(">II", 0x801, 9) + bytes(9))


def datasets():
    seed("datasets", "arff", "a% made\n@relation x\n@attribute \"UNIQUE_ID\" numeric\n@attribute \"user\" {1, 2,33}\n"
         "@attribute X0 REAL\n@attribute class {Walking,'Jogging'}\n\n@data\n1,33,0.5,Walking\n2,1,?,Jogging\n")
    leaf = {"users": ["w2", "w1"], "num_samples": [2, 1],
            "user_data": {"w1": {"x": [[0.5, 1]], "y": [3]}, "w2": {"x": ["to be", "or"], "y": ["n", 4]}}}
    seed("datasets", "leaf", "l" + json.dumps(leaf))
    seed("datasets", "cifar", b"b" + bytes([3]) + bytes(3072))
    adult = ("39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, "
             "United-States, <=50K\n50, Private, 83311, Masters, 13, Divorced, Sales, Wife, Black, Female, 0, 0, 13, ?, >50K.\n")
    seed("datasets", "table", "t" + adult)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        text = ("x_acc,y_acc,z_acc,label\n" + "1,2,9.8,WALKING\n" * 130).encode()
        info = tarfile.TarInfo("d/s01_01_sp.csv")
        info.size = len(text)
        tar.addfile(info, io.BytesIO(text))
    archive = archive.getvalue()[: 512 + 2560 + 1024]
    seed("datasets", "motion.tar", b"m" + archive)
    seed("datasets", "motion.tar.xz", b"m" + lzma.compress(archive))
    compas = ("sex,age,age_cat,race,juv_fel_count,juv_misd_count,juv_other_count,priors_count,c_charge_degree,two_year_recid\n"
              "Male,69,Greater than 45,Other,0,0,0,0,F,0\nFemale,24,Less than 25,African-American,0,1,0,4,M,1\n")
    seed("datasets", "compas", "o" + compas)
    bank = ("\"age\";\"job\";\"marital\";\"education\";\"default\";\"balance\";\"housing\";\"loan\";\"contact\";\"day\";"
            "\"month\";\"duration\";\"campaign\";\"pdays\";\"previous\";\"poutcome\";\"y\"\n"
            "58;\"management\";\"married\";\"tertiary\";\"no\";2143;\"yes\";\"no\";\"unknown\";5;\"may\";261;1;-1;0;\"unknown\";\"no\"\n"
            "30;\"services\";\"single\";\"primary\";\"no\";-29;\"no\";\"yes\";\"cellular\";7;\"jun\";90;2;120;1;\"failure\";\"yes\"\n")
    seed("datasets", "bank", "k" + bank)


def credentials():
    with tempfile.TemporaryDirectory() as dir:
        program = ROOT / "target/ci/fairtier"
        run = lambda *args: subprocess.run([program, "gateway", *args], check=True, stdout=subprocess.PIPE).stdout
        run("init", f"{dir}/gw")
        run("enroll", "--dir", f"{dir}/gw", "--out", dir, "cam-1")
        bundle = pathlib.Path(dir, "cam-1.pem").read_text()
        seed("credentials", "bundle.pem", bundle)
        # Terms are read from the bytes of a certificate, not from their text.
        first = bundle.split("-----BEGIN CERTIFICATE-----")[1].split("-----END")[0]
        seed("credentials", "certificate.der", base64.b64decode(first))
        token = run("token", "--dir", f"{dir}/gw", "--replace", "cam-1").decode().split()[-1]
        seed("credentials", "token", token)
        run("enroll", "--dir", f"{dir}/gw", "--out", dir, "--serial", "--tiers", "3,4", "m4")
        seed("serial", "board-identity", pathlib.Path(dir, "m4.board").read_bytes())
        seed("serial", "member", pathlib.Path(dir, "gw/identity/serial/m4.key").read_bytes())
        seed("credentials", "authority.pem", pathlib.Path(dir, "gw/identity/ca.crt").read_bytes())
    seed("credentials", "name", "cam-1")
    # postcard: secret or none, then a key, uncompressed.
    key = bytes([65, 4]) + bytes(range(64))
    seed("credentials", "question.token", bytes([1]) + bytes(range(32)) + key)
    seed("credentials", "question", bytes([0]) + key)


def cobs(packet):
    """As edge-client/src/serial/line.rs puts it on a line."""
    packet += struct.pack("<I", zlib.crc32(packet))
    line = bytearray([0])
    for stretch in packet.split(b"\0"):
        while len(stretch) >= 254:
            line += b"\xff" + stretch[:254]
            stretch = stretch[254:]
        line += bytes([len(stretch) + 1]) + stretch
    return bytes(line) + b"\0"


def serial():
    shard = b"FTS1" + struct.pack("<IIIf", 2, 2, 1, 0.5) + bytes([1, 2, 3, 4, 0, 1, 9, 8, 1])
    seed("serial", "shard", shard)
    # No samples, and a width that nothing bounds.
    seed("serial", "shard.empty", b"FTS1" + struct.pack("<IIIf", 2**31, 0, 0, 1.0))
    hail = bytes([1, 2]) + bytes(range(16)) + b"m4"
    older = bytes([1, 1]) + bytes(range(16)) + b"m4"
    ping = bytes([0x10])
    samples = bytes([0x12]) + struct.pack("<II", 0, len(shard)) + shard
    taken = bytes([0x13]) + struct.pack("<HII", 0, len(shard), 512)
    plain = [hail, older, ping, samples, taken, bytes([4]), bytes([5, 30, 0]), bytes([2]) + bytes(32),
             bytes([0x14]) + bytes(32), bytes([3]) + bytes(40)]
    seed("serial", "line", b"".join(map(cobs, plain)))
    seed("serial", "line.long", cobs(bytes([0x12]) + bytes(9) + bytes([7]) * 300))
    seed("serial", "pieces", b"".join(bytes([len(packet)]) + packet for packet in plain))
    seed("serial", "taken", taken)
    # An odd first byte: the target seals what follows as samples.
    assert len(samples) % 2 == 0
    seed("serial", "samples", (bytes([len(samples) - 1]) + samples[1:]) * 2)
    # postcard, in a frame of its own: device, board, version, uptime, open, tier, round, batches, working, accepted,
    # refused, arena, samples, stack, damaged, rejected. The target puts kind, version and checksum around it.
    status = b"\x02m4\x04fuzz\x050.1.0" + bytes([9, 1, 1, 2, 3, 4, 0, 5, 1, 30, 100, 10, 7, 0, 1])
    seed("serial", "status", bytes([0]) + status)
    seed("serial", "session", (CORPUS / "session/all").read_bytes())


def files():
    for name in ("fedlf-online", "fedfb-parity", "tour"):
        seed("files", f"{name}.toml", (ROOT / f"sim/experiments/{name}.toml").read_bytes())
    seed("files", "history.jsonl", "{\"round\": 1, \"devices\": []}\n{}\nwhat\n\n{\"round\":2}\n{\"round\": 3")
    sealed = lambda report: f"{report[:-1]},\"crc32\":\"{zlib.crc32(report[:-1].encode()):08x}\"}}\n"
    lines = [sealed(f"{{\"round\":{round},\"devices\":[]}}") for round in (1, 2, 3)]
    seed("files", "history.sealed.jsonl", lines[0] + lines[1].replace("devices", "Devices") + lines[2])
    for name in ("iid", "shards:3", "dominant:0.5", "pat-2", "dirichlet:0.5", "natural:2:1", "strata:50/50,20/80"):
        seed("files", "partition." + name.split(":")[0], name)


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
    seed("records", "round", bytes([1, 0, 1, 5]) + b"cam-1" + bytes([0, 1, 1, 1, 0, 7, 1, 5]) + b"cam-1")
    entry = (bytes([7, 1, 0, 0, 5]) + b"cam-1" + bytes([0, 3, 1]) + struct.pack("<f", 0.1) + bytes([0])
             + bytes([10]) + struct.pack("<d", 2.3) + bytes([1]) + struct.pack("<d", 2.1)
             + bytes([1, 5, 4]) + struct.pack("<d", 0.5) + bytes([3, 0, 0, 0, 0, 0, 0])
             + bytes([2]) + struct.pack("<dd", 0.5, 0.25) + bytes([0, 40, 9]))
    seed("records", "entry", entry)
    seed("records", "device", bytes([5]) + b"cam-1" + bytes([2, 100, 100, 1, 1, 10, 2, 64, 10, 0]))


if __name__ == "__main__":
    shutil.rmtree(CORPUS, ignore_errors=True)
    for make in (frames, transfers, models, config, data, datasets, credentials, serial, files, rounds, records):
        make()
