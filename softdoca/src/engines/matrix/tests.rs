use super::*;

/// Applies a matrix to blocks of one byte.
fn apply(matrix: &Matrix, inputs: &[u8]) -> Vec<u8> {
    assert_eq!(inputs.len(), matrix.inputs());
    let product =
        |output, input: usize| galois::multiply(matrix.factor(input, output), inputs[input]);
    (0..matrix.outputs())
        .map(|output| (0..inputs.len()).fold(0, |sum, input| sum ^ product(output, input)))
        .collect()
}

fn code(matrix: &Matrix) -> Vec<u8> {
    let data: Vec<u8> = (0..matrix.inputs())
        .map(|block| (block * 29 + 3) as u8)
        .collect();
    let redundancy = apply(matrix, &data);
    [data, redundancy].concat()
}

fn subsets(limit: u32, most: usize) -> Vec<Vec<u32>> {
    (1u32..1 << limit)
        .map(|set| {
            (0..limit)
                .filter(|block| set >> block & 1 == 1)
                .collect::<Vec<u32>>()
        })
        .filter(|subset| subset.len() <= most)
        .collect()
}

/// Recovers `missing` and checks the result; false when the loss is said to be fatal.
fn recovers(matrix: &Matrix, missing: &[u32]) -> bool {
    let code = code(matrix);
    let Ok(recover) = matrix.recover(missing) else {
        return false;
    };
    let available: Vec<u8> = (0u32..)
        .zip(&code)
        .filter(|(block, _)| !missing.contains(block))
        .map(|(_, byte)| *byte)
        .take(matrix.inputs())
        .collect();
    let expected: Vec<u8> = missing.iter().map(|block| code[*block as usize]).collect();
    assert_eq!(apply(&recover, &available), expected, "{missing:?}");
    true
}

#[test]
fn factors_are_the_published_ones() {
    let cauchy = Matrix::coding(MatrixType::Cauchy, 2, 1).unwrap();
    // 1/(0+2) and 1/(1+2) in the field of 0x11d.
    assert_eq!((cauchy.factor(0, 0), cauchy.factor(1, 0)), (142, 244));
    let vandermonde = Matrix::coding(MatrixType::Vandermonde, 3, 3).unwrap();
    let factors: Vec<u8> = (0..9)
        .map(|index| vandermonde.factor(index / 3, index % 3))
        .collect();
    assert_eq!(factors, [1, 1, 1, 1, 2, 4, 1, 3, 5]);
}

#[test]
fn cauchy_recovers_every_loss() {
    for (data, redundancy) in [(1, 1), (2, 1), (1, 4), (4, 2), (5, 4), (6, 6)] {
        let matrix = Matrix::coding(MatrixType::Cauchy, data, redundancy).unwrap();
        for missing in subsets((data + redundancy) as u32, redundancy) {
            assert!(
                recovers(&matrix, &missing),
                "{data}+{redundancy} without {missing:?}"
            );
        }
    }
}

#[test]
fn large_codes_work() {
    for matrix_type in [MatrixType::Cauchy, MatrixType::Vandermonde] {
        let matrix = Matrix::coding(matrix_type, 128, 32).unwrap();
        assert!(recovers(&matrix, &[127]));
    }
    let matrix = Matrix::coding(MatrixType::Cauchy, 128, 128).unwrap();
    let half: Vec<u32> = (64..192).collect();
    assert!(recovers(&matrix, &half));
}

#[test]
fn vandermonde_recovers_one_loss_and_admits_what_it_cannot() {
    let matrix = Matrix::coding(MatrixType::Vandermonde, 2, 1).unwrap();
    assert!([0, 1, 2].iter().all(|block| recovers(&matrix, &[*block])));
    let matrix = Matrix::coding(MatrixType::Vandermonde, 10, 4).unwrap();
    let (good, bad): (Vec<_>, Vec<_>) = subsets(14, 4)
        .into_iter()
        .partition(|missing| recovers(&matrix, missing));
    assert!(
        !bad.is_empty() && good.len() > 10 * bad.len(),
        "{} and {}",
        good.len(),
        bad.len()
    );
    assert!(good.iter().filter(|missing| missing.len() == 1).count() == 14);
}

#[test]
fn a_singular_loss_of_a_code_of_factors_is_refused() {
    // Both redundancy blocks are the same sum.
    let matrix = Matrix::from_factors(vec![1; 6], 3, 2).unwrap();
    assert_eq!(matrix.recover(&[0, 1]), Err(Error::InvalidValue));
    assert!(recovers(&matrix, &[0, 3]));
}

#[test]
fn updates_agree_with_coding_anew() {
    for matrix_type in [MatrixType::Cauchy, MatrixType::Vandermonde] {
        let matrix = Matrix::coding(matrix_type, 5, 3).unwrap();
        let old = code(&matrix);
        for changed in subsets(5, 5) {
            let mut data = old[..5].to_vec();
            let mut inputs = Vec::new();
            for block in &changed {
                let new = data[*block as usize].wrapping_mul(7) ^ 0x55;
                inputs.extend([data[*block as usize], new]);
                data[*block as usize] = new;
            }
            inputs.extend_from_slice(&old[5..]);
            let update = matrix.update(&changed).unwrap();
            assert_eq!(update.purpose(), Purpose::Update);
            assert_eq!(apply(&update, &inputs), apply(&matrix, &data));
        }
    }
}

#[test]
fn bad_arguments_are_refused() {
    for (data, redundancy) in [(0, 1), (1, 0), (200, 57), (usize::MAX, 1), (1, usize::MAX)] {
        assert_eq!(
            Matrix::coding(MatrixType::Cauchy, data, redundancy),
            Err(Error::InvalidValue)
        );
        assert_eq!(
            Matrix::from_factors(vec![1], data, redundancy),
            Err(Error::InvalidValue)
        );
    }
    assert_eq!(
        Matrix::from_factors(vec![1; 5], 3, 2),
        Err(Error::InvalidValue)
    );
    let matrix = Matrix::coding(MatrixType::Cauchy, 4, 2).unwrap();
    for missing in [&[][..], &[6], &[1, 0], &[1, 1], &[0, 1, 2], &[u32::MAX]] {
        assert_eq!(
            matrix.recover(missing),
            Err(Error::InvalidValue),
            "{missing:?}"
        );
    }
    for changed in [&[][..], &[4], &[1, 0], &[1, 1]] {
        assert_eq!(
            matrix.update(changed),
            Err(Error::InvalidValue),
            "{changed:?}"
        );
    }
    let recover = matrix.recover(&[1]).unwrap();
    assert_eq!(recover.recover(&[1]), Err(Error::InvalidValue));
    assert_eq!(recover.update(&[1]), Err(Error::InvalidValue));
}
