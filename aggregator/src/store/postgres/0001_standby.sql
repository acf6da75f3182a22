-- One run, one leader. Names are compared byte by byte: the order of devices decides the order of sums.
create table fleet (
    one       boolean primary key default true check (one),
    authority bytea not null
);
create table leader (
    one     boolean primary key default true check (one),
    epoch   bigint not null default 0,
    node    text not null default '',
    pid     int not null default 0,
    started timestamptz not null default '-infinity',
    until   timestamptz not null default '-infinity'
);
insert into leader default values;
create table gateway (
    node    text primary key,
    version text not null,
    schema  int not null,
    address text not null,
    seen    timestamptz not null default clock_timestamp()
);
create table run (
    one        boolean primary key default true check (one),
    run        bigint not null,
    record     bytea not null,
    next_round bigint not null default 1,
    attempt    int not null default 0,
    open       bytea,
    began      bigint,
    state      bytea not null,
    best       bytea,
    config     text,
    weights    bigint not null
);
create table device (
    device text collate "C" primary key,
    record bytea not null
);
create table model (
    round   bigint not null,
    object  text primary key,
    bytes   bigint not null,
    crc     bigint not null,
    sha256  bytea not null,
    dropped timestamptz
);
create unique index model_of_round on model (round) where dropped is null;
create table segment (
    object  text primary key,
    round   bigint not null,
    bytes   bigint not null,
    dropped timestamptz
);
create table receipt (
    round    bigint not null,
    exchange smallint not null,
    device   text collate "C" not null,
    attempt  int not null,
    segment  text not null,
    entry    bytea not null,
    received timestamptz not null default clock_timestamp(),
    primary key (round, exchange, device)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000);
create table report (
    round  bigint primary key,
    report text not null
);
