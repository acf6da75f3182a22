//! A partition as a table, a page and a picture.

use common::output::{table, wrap};

use crate::partition::{ClientView, PartitionView};
use plots::{
    PICTURE_STYLE, PLOT_STYLE, STYLE,
    markup::{Element, el},
    number,
    shares::{StackedColumns, shares, shares_parts},
};

/// Number of classes with their own column in tables.
const CLASSES: usize = 12;
/// Letters of a class name in the header of a table.
const LETTERS: usize = 7;

/// One line per client. Tables wider than `columns` are split.
pub fn partition_table(view: &PartitionView, columns: usize) -> String {
    let mut rows = vec![["client", "train", "valid", "test"].map(String::from).to_vec()];
    rows[0].extend(kinds(view).map(|kind| kind.chars().take(LETTERS).collect()));
    for client in &view.clients {
        let ClientView { name, train, valid, test, .. } = client;
        let mut row = vec![name.clone(), train.to_string(), valid.to_string(), test.to_string()];
        row.extend(counts(view, client).map(usize::to_string));
        rows.push(row);
    }
    format!("{}\n\n{}", wrap(&summary(view), 0, columns), table(&rows, 1, columns))
}

fn summary(view: &PartitionView) -> String {
    let PartitionView { data, partition, seed, least, median, most, .. } = view;
    let left = match (view.left_out, view.left_out_test) {
        (0, _) => String::new(),
        (train, _) => format!("; {train} training samples are left out"),
    };
    format!(
        "{data} divided by {partition} among {} clients, seed {seed}: {least} to {most} training samples (median {median}), {:.1} classes per client, skew {:.2}{left}",
        view.clients.len(),
        view.classes_per_client,
        view.skew
    )
}

/// Names of classes and groups that fit into a table.
fn kinds(view: &PartitionView) -> impl Iterator<Item = &String> {
    let classes = if view.classes.len() <= CLASSES { &view.classes[..] } else { &[] };
    classes.iter().chain(&view.groups)
}

fn counts<'a>(view: &PartitionView, client: &'a ClientView) -> impl Iterator<Item = &'a usize> {
    let classes = if view.classes.len() <= CLASSES { &client.per_class[..] } else { &[] };
    classes.iter().chain(&client.per_group)
}

fn stacks(view: &PartitionView) -> Vec<StackedColumns<'_>> {
    let of = |pick: fn(&ClientView) -> &[usize]| {
        view.clients.iter().map(|client| (&*client.name, pick(client))).collect()
    };
    let mut stacks =
        vec![StackedColumns { what: "class", kinds: &view.classes, clients: of(|client| &client.per_class) }];
    if !view.groups.is_empty() {
        stacks.push(StackedColumns {
            what: "group",
            kinds: &view.groups,
            clients: of(|client| &client.per_group),
        });
    }
    stacks
}

/// A complete HTML document: no network, no script.
pub fn partition_html(view: &PartitionView) -> String {
    let title = format!("{} among {} clients: {}", view.data, view.clients.len(), view.partition);
    let head = el("head")
        .with(el("meta").set("charset", "utf-8"))
        .with(el("meta").set("name", "viewport").set("content", "width=device-width, initial-scale=1"))
        .with(el("title").text(&title))
        .with(el("style").text(PLOT_STYLE).text(STYLE));
    let figure = |stack: &StackedColumns<'_>| {
        let caption = format!("One column per client. Hover to read how many samples of a {}.", stack.what);
        el("section")
            .with(el("h2").text(format_args!("By {}", stack.what)))
            .with(el("figure").class("wide").with(shares(stack)).with(el("figcaption").text(caption)))
    };
    let main = el("main")
        .with(el("header").with(el("h1").text(&title)).with(el("p").class("lead").text(summary(view))))
        .with(cards(view))
        .all(stacks(view).iter().map(figure))
        .with(el("section").with(el("h2").text("All clients")).with(rows(view)))
        .with(
            el("footer").text("Written by fairtier sim partition. The same seed gives the same partition."),
        );
    let page = el("html").set("lang", "en").with(head).with(el("body").with(main));
    format!("<!DOCTYPE html>\n{page}\n")
}

fn cards(view: &PartitionView) -> Element {
    let card = |title: &str, big: String, note: &str| {
        el("div")
            .class("card")
            .with(el("h3").text(title))
            .with(el("p").class("big").text(big))
            .with(el("p").class("soft").text(note))
    };
    el("section").class("cards").set("aria-label", "Summary").all([
        card("Clients", view.clients.len().to_string(), "with samples of their own"),
        card("Samples", format!("{}–{}", view.least, view.most), "to train on, smallest and largest client"),
        card("Classes", number::figure(view.classes_per_client), "per client, on average"),
        card("Skew", number::figure(view.skew), "0: all clients have equal shares; 1: nothing in common"),
    ])
}

fn rows(view: &PartitionView) -> Element {
    let head = |name: &str| el("th").set("scope", "col").text(name);
    let titles = el("tr")
        .with(el("th").set("scope", "col").class("left").text("Client"))
        .all(["Train", "Valid", "Test"].map(head))
        .all(kinds(view).map(|name| head(name)));
    let row = |client: &ClientView| {
        let cell = |count: &usize| el("td").text(count);
        el("tr")
            .with(el("th").set("scope", "row").text(&client.name))
            .all([client.train, client.valid, client.test].iter().map(cell))
            .all(counts(view, client).map(cell))
    };
    let table =
        el("table").with(el("thead").with(titles)).with(el("tbody").all(view.clients.iter().map(row)));
    el("div")
        .class("scroll")
        .set("tabindex", 0)
        .set("role", "region")
        .set("aria-label", "All clients")
        .with(table)
}

/// A complete SVG document.
pub fn partition_picture(view: &PartitionView) -> String {
    const HEAD: f64 = 52.0;
    let title = format!("{} among {} clients: {}", view.data, view.clients.len(), view.partition);
    let mut top = HEAD;
    let panels: Vec<Element> = stacks(view)
        .iter()
        .map(|stack| {
            let (height, parts) = shares_parts(stack);
            let panel = el("g").set("transform", format_args!("translate(0 {top})")).all(parts);
            top += height;
            panel
        })
        .collect();
    let svg = el("svg")
        .set("xmlns", "http://www.w3.org/2000/svg")
        .set("viewBox", format_args!("0 0 1080 {top}"))
        .at("width", 1080.0)
        .at("height", top)
        .set("role", "img")
        .set("aria-label", summary(view))
        .with(el("style").text(PLOT_STYLE).text(PICTURE_STYLE))
        .with(el("rect").class("back").set("width", "100%").set("height", "100%"))
        .with(el("text").at("x", 60.0).at("y", 30.0).class("head").text(title))
        .all(panels);
    format!("{svg}\n")
}

#[cfg(test)]
mod tests {
    use common::output::COLUMNS;

    use super::*;
    use crate::{
        data::{DataDirs, known},
        partition::{Partition, Testing},
    };

    fn view(data: &str, partition: &str, clients: Option<usize>) -> PartitionView {
        let set = known::load(data, &DataDirs::default(), 0).unwrap();
        let partition: Partition = partition.parse().unwrap();
        let split = partition.split(&set, clients, Testing::default(), 0).unwrap();
        PartitionView::new(&set, &partition, &split, 0)
    }

    #[test]
    fn table_page_and_picture_show_every_client() {
        let view = view("digits", "extreme", Some(25));
        let [table, page, picture] =
            [partition_table(&view, COLUMNS), partition_html(&view), partition_picture(&view)];
        for client in 0..25 {
            let name = format!("client {client}");
            assert!(table.contains(&name) && page.contains(&name) && picture.contains(&name), "{name}");
        }
        assert_eq!(table.lines().filter(|line| line.starts_with("client")).count(), 25 + 1);
        assert!(page.starts_with("<!DOCTYPE html>") && picture.starts_with("<svg "));
        let page = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!page.contains("<script") && !page.contains("http"));
    }

    #[test]
    fn the_height_of_columns_is_the_number_of_samples() {
        let view = view("digits", "dominant:0.8", Some(10));
        let stack = &stacks(&view)[0];
        let svg = shares(stack).to_string();
        // Every class of every client with samples is a rectangle with the number of samples.
        let some =
            view.clients.iter().flat_map(|client| &client.per_class).filter(|&&count| count > 0).count();
        assert_eq!(svg.matches("<title>").count(), some);
        let first = &view.clients[0];
        assert!(svg.contains(&format!("client 0: {} of {} class 0", first.per_class[0], first.train)));
    }

    #[test]
    fn groups_have_their_own_panel() {
        let view = view("fedfb", "groups:medium", None);
        let page = partition_html(&view);
        assert!(page.contains("By class") && page.contains("By group") && page.contains("a=1"));
        assert_eq!(partition_picture(&view).matches("translate(0").count(), 2);
    }

    #[test]
    fn many_classes_share_the_last_colour() {
        let kinds: Vec<String> = (0..30).map(|kind| format!("kind {kind}")).collect();
        let counts: Vec<usize> = (1..=30).collect();
        let svg = shares(&StackedColumns { what: "class", kinds: &kinds, clients: vec![("one", &counts)] })
            .to_string();
        assert!(svg.contains("19 others") && svg.contains("k11") && !svg.contains("k12"));
        assert!(svg.contains(&format!("one: {} of 465 class 19 others", (1..=19).sum::<usize>())));
    }
}
