//! Boxes, dots and text at points of a drawing, whatever it is drawn on.

use super::PlotError;
use plotters::coord::Shift;
use plotters::prelude::{Circle, DrawingArea, DrawingBackend, PathElement, Rectangle};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{
    Color, FontDesc, FontFamily, FontStyle, RGBColor, ShapeStyle, TextStyle, register_font,
};
use std::sync::Once;

const REGULAR: &[u8] = include_bytes!("../../assets/Roboto-Regular.ttf");
const BOLD: &[u8] = include_bytes!("../../assets/Roboto-Bold.ttf");

/// The name under which the built-in font is known; what shows an SVG has its own of that name.
const FAMILY: &str = "sans-serif";

static FONTS: Once = Once::new();

/// The horizontal alignment of a text to its point.
#[derive(Debug, Clone, Copy)]
pub enum Align {
    Left,
    Right,
}

/// The look of a text.
#[derive(Debug, Clone, Copy)]
pub struct Letters {
    pub size: f64,
    pub bold: bool,
    pub color: RGBColor,
    pub align: Align,
}

impl Letters {
    pub fn new(size: f64, color: RGBColor) -> Self {
        Letters {
            size,
            bold: false,
            color,
            align: Align::Left,
        }
    }

    pub fn bold(self) -> Self {
        Letters { bold: true, ..self }
    }

    pub fn align(self, align: Align) -> Self {
        Letters { align, ..self }
    }
}

/// A drawing in points, scaled to the pixels of what is below.
pub struct Canvas<DB: DrawingBackend> {
    area: DrawingArea<DB, Shift>,
    scale: i32,
    lower_text: i32,
}

impl<DB: DrawingBackend> Canvas<DB> {
    /// Texts are drawn `lower_text` points lower: what is below may center a line's box, in which
    /// letters stand high, or the letters.
    pub fn new(
        area: DrawingArea<DB, Shift>,
        scale: u32,
        lower_text: i32,
    ) -> Result<Self, PlotError> {
        let mut registered = true;
        FONTS.call_once(|| {
            registered = register_font(FAMILY, FontStyle::Normal, REGULAR).is_ok()
                && register_font(FAMILY, FontStyle::Bold, BOLD).is_ok();
        });
        if !registered {
            return Err(PlotError::Drawing(
                "the built-in font is damaged".to_owned(),
            ));
        }
        Ok(Canvas {
            area,
            scale: i32::try_from(scale).unwrap_or(1),
            lower_text,
        })
    }

    pub fn background(&self, color: RGBColor) -> Result<(), PlotError> {
        self.area.fill(&color).map_err(drawing)
    }

    pub fn rectangle(
        &self,
        (left, top): (i32, i32),
        (width, height): (i32, i32),
        color: RGBColor,
    ) -> Result<(), PlotError> {
        // The far corner is inside for the library.
        let far = (
            (left + width) * self.scale - 1,
            (top + height) * self.scale - 1,
        );
        let corners = [(left * self.scale, top * self.scale), far];
        self.area
            .draw(&Rectangle::new(corners, color.filled()))
            .map_err(drawing)
    }

    pub fn line(
        &self,
        from: (i32, i32),
        to: (i32, i32),
        width: u32,
        color: RGBColor,
    ) -> Result<(), PlotError> {
        let at = |(x, y): (i32, i32)| (x * self.scale, y * self.scale);
        let width = width * self.scale.unsigned_abs();
        let style = ShapeStyle {
            color: color.to_rgba(),
            filled: true,
            stroke_width: width,
        };
        self.area
            .draw(&PathElement::new([at(from), at(to)], style))
            .map_err(drawing)
    }

    pub fn dot(&self, (x, y): (i32, i32), radius: i32, color: RGBColor) -> Result<(), PlotError> {
        let center = (x * self.scale, y * self.scale);
        self.area
            .draw(&Circle::new(center, radius * self.scale, color.filled()))
            .map_err(drawing)
    }

    /// Text whose vertical middle is at the point.
    pub fn text(&self, text: &str, (x, y): (i32, i32), look: Letters) -> Result<(), PlotError> {
        let style = if look.bold {
            FontStyle::Bold
        } else {
            FontStyle::Normal
        };
        let size = look.size * f64::from(self.scale);
        let font = FontDesc::new(FontFamily::Name(FAMILY), size, style);
        let horizontal = match look.align {
            Align::Left => HPos::Left,
            Align::Right => HPos::Right,
        };
        let position = Pos::new(horizontal, VPos::Center);
        let style = TextStyle::from(font).color(&look.color).pos(position);
        let lowered = (y + self.lower_text) * self.scale;
        self.area
            .draw_text(text, &style, (x * self.scale, lowered))
            .map_err(drawing)
    }

    pub fn finish(&self) -> Result<(), PlotError> {
        self.area.present().map_err(drawing)
    }
}

fn drawing(error: impl std::error::Error) -> PlotError {
    PlotError::Drawing(error.to_string())
}
