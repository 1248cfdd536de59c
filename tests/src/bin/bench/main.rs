//! Measures what Holdfast costs, each figure beside the native one of the same run, and prints the table of `docs/performance.md`.
//!
//! `cargo run --release -p holdfast-tests --bin bench [-- ROW…]`: without words all rows, else those whose group begins with one of them.
//! `--few` does little of what takes long, to see that it works; its figures say nothing.

mod lasting;
mod place;
mod rows;
mod table;

use table::Table;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    if let [word, port] = wanted.as_slice()
        && word == place::BARE_RELAY
    {
        place::bare_relay(port.parse().expect("a port"));
    }
    let mut table = Table::new(wanted);
    if holdfast_tests::probe::probe().is_none() {
        return;
    }
    rows::start(&mut table);
    rows::connect(&mut table);
    rows::requests(&mut table);
    rows::bulk(&mut table);
    rows::workload(&mut table);
    rows::memory(&mut table);
    rows::descriptors(&mut table);
    lasting::exec(&mut table);
    lasting::host(&mut table);
    lasting::output(&mut table);
    table.print();
}
