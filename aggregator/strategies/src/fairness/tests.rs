mod properties;
mod refusals;
mod resolution;
mod rounds;
mod vectors;
