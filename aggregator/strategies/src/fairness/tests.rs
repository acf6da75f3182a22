mod properties;
mod refusals;
mod rounds;
mod vectors;
