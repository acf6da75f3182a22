//! Text that `--help` shows after the options.

pub(super) const DEVICE: &str = "\
Examples:
  fairtier device enroll --server 192.168.1.10:4433 --token cam-1:..
      get this device's identity, cam-1.pem
  fairtier device run --server 192.168.1.10:4433 --identity cam-1.pem --data digits
      take part with the built-in digits
  fairtier device run --server gw:4433 --identity cam-1.pem --data samples.csv --schema fairtier.toml --ram 256k
      take part with own data, within 256 KiB of memory
  fairtier device run --server gw:4433 --identity bank-1.pem --csv loans.csv --attribute sex
            also report groups, for strategies that equalise them
  fairtier device run --server gw:4433 --identity cam-1.pem --data digits --save-model model.onnx
      and keep the device's sub-model
  fairtier device bridge --server gw:4433 --identity bridge.pem --port '/dev/ttyACM*'
      carry boards on serial ports to the gateway
  fairtier device predict --model model.onnx --csv samples.csv
      predict with that sub-model";

pub(super) const BOARD: &str = "\
Examples:
  fairtier board shard --data digits --share 0/14 --out m4.shard
      samples for a board: the first of 14 parts of the built-in digits
  fairtier board flash mps2-an386 --identity m4.board --shard m4.shard --serial unix:boards.sock
      start an emulated board that is plugged into the bridge's socket
  fairtier board provision /dev/ttyACM0 --identity m4.board --data digits --share 0/14
      give a board samples over the serial line
  fairtier board monitor /dev/ttyACM0
            print the status of a board";

pub(super) const RUN: &str = "\
Examples:
  fairtier device run --server 192.168.1.10:4433 --identity cam-1.pem --data digits    until the run is over
  fairtier device run --server gw:4433 --identity cam-1.pem --csv samples.csv --ram 256k --save-model model.onnx
  fairtier device run --server gw:4433 --identity bank-1.pem --csv loans.csv --attribute sex --max-epsilon 2 --max-private-rounds 50
            send at most 50 answers, all with noise, each with an epsilon of at most 2
  fairtier device run --server gw-1:4433,gw-2:4433 --identity cam-1.pem --data digits
            go on at the other address when one is lost

The secret of the noise is created in cam-1.secret, next to the identity. It never leaves this machine.";

pub(super) const BRIDGE: &str = "\
Examples:
  fairtier device bridge --server gw:4433 --identity bridge.pem --port '/dev/ttyACM*'     all boards that are plugged in
  fairtier device bridge --identity bridge.pem --port unix:boards.sock --ask 60           emulated ones, with their status
  fairtier device bridge --server gw-1:4433,gw-2:4433 --identity bridge.pem --port '/dev/ttyACM*'
            go on at the other address when one is lost";

pub(super) const FLASH: &str = "\
Examples:
  fairtier board flash mps2-an386 --identity m4.board --shard m4.shard --serial unix:boards.sock   starts an emulated board
  fairtier board flash stm32f407 --identity f4.board --shard f4.shard                              writes a real one

The secret of the board's noise is created in m4.secret, next to the board identity, and reused when the board is flashed again.";

pub(super) const MONITOR: &str = "\
Examples:
  fairtier board monitor /dev/ttyACM0                  every second, until Ctrl-C
  fairtier board monitor unix:board.sock --count 1

No bridge may have the port open.";

pub(super) const PROVISION: &str = "\
Examples:
  fairtier board provision /dev/ttyACM0 --identity m4.board --data digits --share 0/14
  fairtier board provision unix:board.sock --identity m4.board --shard m4.shard

`fairtier gateway enroll --serial` writes the board identity: a board accepts samples only from a holder of its key. It keeps them
in RAM, so they are lost at a reset. No bridge may have the port open.";

pub(super) const ASK: &str = "\
Examples:
  fairtier board predict /dev/ttyACM0 --identity m4.board --csv rows.csv
  fairtier board predict unix:board.sock --identity m4.board --data digits --show 3 --format json

The board answers with the model of its last round, also after a reset without a gateway. No bridge may have the port open.";

pub(super) const SHARD: &str = "\
Examples:
  fairtier board shard --data digits --share 0/14 --out m4.shard                 the first of 14 parts of the built-in digits
  fairtier board shard --csv samples.csv --levels 255 --out m4.shard";

pub(super) const ENROLL: &str = "\
Examples:
  fairtier device enroll --server gw:4433 --token cam-1:..    writes cam-1.pem; `fairtier gateway token` prints the token
  FAIRTIER_TOKEN=cam-1:.. fairtier device enroll --server gw:4433 --out /etc/fairtier";

pub(super) const RENEW: &str = "\
Examples:
  fairtier device renew --server gw:4433 --identity cam-1.pem    `run` and `bridge` renew automatically";

#[cfg(feature = "predict")]
pub(super) const PREDICT: &str = "\
Examples:
  fairtier device predict --model model.onnx --csv samples.csv
  fairtier device predict --model model.onnx --data digits --show 0 --format json
  fairtier device predict --model model.onnx --data - --format csv < rows.csv    rows from standard input

Columns are read by the schema in the file, if it has one. Without labels there is no score.";
