//! Groups orders: JSON in, JSON out, with serde as its users have it.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct Order {
    id: u64,
    customer: String,
    #[serde(default)]
    tags: Vec<String>,
    lines: Vec<Line>,
    note: Option<String>,
}

#[derive(Deserialize)]
struct Line {
    item: String,
    quantity: u32,
    price: f64,
}

#[derive(Default, Serialize)]
struct Summary {
    orders: Vec<u64>,
    total: f64,
    items: BTreeMap<String, u32>,
    tags: BTreeMap<String, u32>,
    notes: usize,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let orders: Vec<Order> = serde_json::from_str(&std::io::read_to_string(std::io::stdin())?)?;
    let mut customers: BTreeMap<String, Summary> = BTreeMap::new();
    for order in orders {
        let summary = customers.entry(order.customer).or_default();
        summary.orders.push(order.id);
        for line in order.lines {
            summary.total += f64::from(line.quantity) * line.price;
            *summary.items.entry(line.item).or_default() += line.quantity;
        }
        for tag in order.tags {
            *summary.tags.entry(tag).or_default() += 1;
        }
        summary.notes += order.note.map_or(0, |n| n.chars().count());
    }
    println!("{}", serde_json::to_string(&customers)?);
    Ok(())
}
