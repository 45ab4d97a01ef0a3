//! The report as a picture that needs nothing of the machine: the font is built in.

mod canvas;
mod chart;

use crate::error::{BenchError, PlotError};
use crate::report::Report;
use canvas::Canvas;
use plotters::prelude::{BitMapBackend, IntoDrawingArea, SVGBackend};
use std::fs;
use std::io;
use std::path::Path;

/// Pixels of a bitmap per point of the drawing, for sharp screens.
const BITMAP_SCALE: u32 = 2;

/// The format of the picture's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A bitmap.
    Png,
    /// A vector graphic.
    Svg,
}

impl Format {
    /// The format that a file's name asks for.
    pub fn of(path: &Path) -> Result<Self, PlotError> {
        let extension = path
            .extension()
            .map(|extension| extension.to_ascii_lowercase());
        match extension.as_ref().and_then(|extension| extension.to_str()) {
            Some("png") => Ok(Format::Png),
            Some("svg") => Ok(Format::Svg),
            _ => Err(PlotError::Format(path.to_owned())),
        }
    }
}

/// Whether the picture can probably be written, checked without writing it.
pub fn check(path: &Path) -> Result<(), PlotError> {
    Format::of(path)?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let found = fs::metadata(folder).and_then(|found| match found.is_dir() {
        true => Ok(()),
        false => Err(io::ErrorKind::NotADirectory.into()),
    });
    found.map_err(|error| PlotError::File(path.to_owned(), error))
}

impl Report {
    /// Draws the report into a file whose name ends in `.png` or `.svg`.
    pub fn plot(&self, path: &Path) -> Result<(), BenchError> {
        Ok(write(self, path)?)
    }
}

fn write(report: &Report, path: &Path) -> Result<(), PlotError> {
    let bytes = match Format::of(path)? {
        Format::Png => png(report)?,
        Format::Svg => svg(report)?.into_bytes(),
    };
    fs::write(path, bytes).map_err(|error| PlotError::File(path.to_owned(), error))
}

fn svg(report: &Report) -> Result<String, PlotError> {
    let (width, height) = chart::size(report)?;
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (width, height)).into_drawing_area();
        chart::draw(report, &Canvas::new(area, 1, 0)?)?;
    }
    Ok(text)
}

fn png(report: &Report) -> Result<Vec<u8>, PlotError> {
    let (width, height) = chart::size(report)?;
    let (width, height) = (width * BITMAP_SCALE, height * BITMAP_SCALE);
    let pixels = usize::try_from(width).unwrap_or(0) * usize::try_from(height).unwrap_or(0);
    let mut buffer = vec![0; pixels * 3];
    {
        let backend = BitMapBackend::with_buffer(&mut buffer, (width, height));
        chart::draw(
            report,
            &Canvas::new(backend.into_drawing_area(), BITMAP_SCALE, 2)?,
        )?;
    }
    encode(&buffer, width, height).map_err(|error| PlotError::Drawing(error.to_string()))
}

fn encode(rgb: &[u8], width: u32, height: u32) -> Result<Vec<u8>, png::EncodingError> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(rgb)?;
    writer.finish()?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::sample;

    #[test]
    fn the_name_says_the_format() {
        assert_eq!(Format::of(Path::new("a/b.PNG")).unwrap(), Format::Png);
        assert_eq!(Format::of(Path::new("b.svg")).unwrap(), Format::Svg);
        for other in ["b", "b.jpg", "png", ".svg"] {
            assert!(Format::of(Path::new(other)).is_err(), "{other}");
        }
    }

    #[test]
    fn a_picture_that_can_not_be_written_is_known_beforehand() {
        assert!(check(Path::new("picture.png")).is_ok());
        assert!(check(Path::new("/tmp/picture.svg")).is_ok());
        for bad in [
            "/nonexistent/picture.png",
            "/dev/null/picture.png",
            "picture.gif",
        ] {
            assert!(check(Path::new(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_vector_graphic_has_the_words_and_figures() {
        let text = svg(&sample()).unwrap();
        for word in [
            "kernel TCP",
            "AF_UNIX",
            "NetChannel",
            "105.0 Gbit/s",
            "5.00×",
            "687 ns",
        ] {
            assert!(text.contains(word), "{word}");
        }
    }

    #[test]
    fn the_bitmap_has_text_and_not_only_boxes() {
        let bytes = png(&sample()).unwrap();
        let mut reader = png::Decoder::new(io::Cursor::new(bytes))
            .read_info()
            .unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let information = reader.next_frame(&mut pixels).unwrap();
        assert_eq!(information.width % BITMAP_SCALE, 0);
        // Letters have soft edges: shades between ink and paper, which no box has.
        let shades: std::collections::HashSet<&[u8]> = pixels.chunks(3).collect();
        assert!(shades.len() > 100, "{} shades", shades.len());
    }

    #[test]
    fn nothing_measured_makes_no_picture() {
        let mut report = sample();
        report.cases.clear();
        assert!(matches!(svg(&report), Err(PlotError::Empty)));
    }
}
