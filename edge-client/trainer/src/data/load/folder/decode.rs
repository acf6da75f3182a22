//! PNG and JPEG to bytes.

use std::io::Cursor;

use zune_jpeg::{
    JpegDecoder,
    zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions},
};

/// Most pixels along one side.
const MAX_SIDE: usize = 1 << 13;
/// Most bytes of pixels that one byte of a file stands for, so that a header cannot ask for memory that no content fills.
/// Deflate repeats 258 bytes with two bits. JPEG spends at least one bit on 64 pixels of three colours.
const MAX_EXPANSION: usize = 1536;

/// One image, pixel after pixel.
pub(super) struct Image {
    /// Channels, height, width.
    pub(super) shape: [usize; 3],
    pub(super) pixels: Vec<u8>,
}

impl Image {
    /// By the first bytes, whatever the name.
    pub(super) fn decode(file: &[u8]) -> Result<Self, String> {
        let image = match file {
            [0x89, b'P', b'N', b'G', ..] => png(file),
            [0xff, 0xd8, ..] => jpeg(file),
            _ => return Err("is neither PNG nor JPEG; convert or remove it".into()),
        }?;
        // The decoders promise it; the channels are read by these sizes.
        match image.shape.iter().product::<usize>() == image.pixels.len() {
            true => Ok(image),
            false => Err("is damaged; write it again".into()),
        }
    }
}

/// Refuses sizes that are too large, or that a file of this length cannot fill.
fn check_size([channels, height, width]: [usize; 3], file: &[u8]) -> Result<(), String> {
    if width.max(height) > MAX_SIDE {
        return Err(format!("is {width}x{height}, larger than {MAX_SIDE} pixels on one side; scale it down"));
    }
    match channels * height * width <= file.len() * MAX_EXPANSION {
        true => Ok(()),
        false => Err(format!(
            "says it is {width}x{height}, which {} bytes cannot hold; it is damaged, write it again",
            file.len()
        )),
    }
}

fn png(file: &[u8]) -> Result<Image, String> {
    let damaged = |error: png::DecodingError| format!("is no readable PNG: {error}");
    let mut decoder = png::Decoder::new(Cursor::new(file));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().map_err(damaged)?;
    let (width, height) = (reader.info().width as usize, reader.info().height as usize);
    let channels = match reader.output_color_type().0 {
        png::ColorType::Grayscale => 1,
        png::ColorType::Rgb => 3,
        _ => return Err("has transparency; save it as grey or RGB".into()),
    };
    check_size([channels, height, width], file)?;
    let mut pixels = vec![0; channels * width * height];
    reader.next_frame(&mut pixels).map_err(damaged)?;
    Ok(Image { shape: [channels, height, width], pixels })
}

fn jpeg(file: &[u8]) -> Result<Image, String> {
    let damaged = |error: zune_jpeg::errors::DecodeErrors| format!("is no readable JPEG: {error}");
    let options = DecoderOptions::default().set_max_width(MAX_SIDE).set_max_height(MAX_SIDE);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(file), options);
    decoder.decode_headers().map_err(damaged)?;
    let (width, height) = decoder.dimensions().ok_or("has no size; write it again")?;
    let channels = match decoder.input_colorspace() {
        Some(ColorSpace::Luma) => 1,
        Some(ColorSpace::YCbCr | ColorSpace::RGB) => 3,
        _ => return Err("is neither grey nor colour; save it as grey or RGB".into()),
    };
    check_size([channels, height, width], file)?;
    let space = if channels == 1 { ColorSpace::Luma } else { ColorSpace::RGB };
    decoder.set_options(options.jpeg_set_out_colorspace(space));
    let pixels = decoder.decode().map_err(damaged)?;
    Ok(Image { shape: [channels, height, width], pixels })
}
