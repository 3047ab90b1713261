//! Loops compiled once for each instruction set.

#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
use crate::dispatch::Isa;
use crate::dispatch::isa;

/// Defines functions whose bodies, plain loops, are compiled for each instruction set and run for the one in use. All else is
/// compiled for the baseline, where a vector has 128 bits; here the compiler vectorises with up to 512.
///
/// That reaches what is inlined into the body: functions it calls should be `#[inline(always)]`. Elements are best written to a
/// slice: a loop that pushes them to a `Vec` is not vectorised.
///
/// ```
/// covey_kernels::vectorised! {
///     /// `out = out + a`
///     fn add(out: &mut [u32], a: &[u32]) {
///         out.iter_mut().zip(a).for_each(|(out, a)| *out = out.wrapping_add(*a));
///     }
/// }
/// let mut sum = [1, 2];
/// add(&mut sum, &[3, 4]);
/// assert_eq!(sum, [4, 6]);
/// ```
#[macro_export]
macro_rules! vectorised {
    ($(
        $(#[$attribute:meta])*
        $visibility:vis fn $name:ident $(<$word:ident: $bound:ident>)? ($($argument:ident: $type:ty),* $(,)?) $body:block
    )*) => {$(
        $(#[$attribute])*
        #[allow(clippy::too_many_arguments)]
        $visibility fn $name $(<$word: $bound>)? ($($argument: $type),*) {
            struct Body;

            impl $(<$word: $bound>)? $crate::loops::Loop<($($type,)*)> for Body {
                #[inline(always)]
                fn run(($($argument,)*): ($($type,)*)) {
                    // As arguments of a function slices are known not to overlap.
                    #[inline(always)]
                    fn body $(<$word: $bound>)? ($($argument: $type),*) $body
                    body($($argument),*);
                }
            }

            $crate::loops::run::<Body, _>(($($argument,)*));
        }
    )*};
}

/// The body of a function defined by [`vectorised!`], `A` its arguments.
pub trait Loop<A> {
    /// Runs it. `#[inline(always)]`: that is what compiles it for the caller's instruction set.
    fn run(arguments: A);
}

/// Runs `L` compiled for the instruction set in use.
#[inline]
pub fn run<L: Loop<A>, A>(arguments: A) {
    match isa() {
        #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
        // SAFETY: the processor has the features of its `Isa`.
        isa if isa >= Isa::Avx512 => unsafe { avx512::<L, A>(arguments) },
        #[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
        // SAFETY: as above.
        Isa::Avx2 => unsafe { avx2::<L, A>(arguments) },
        _ => L::run(arguments),
    }
}

#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
#[target_feature(enable = "avx2")]
fn avx2<L: Loop<A>, A>(arguments: A) {
    L::run(arguments);
}

#[cfg(all(target_arch = "x86_64", not(feature = "portable-only")))]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn avx512<L: Loop<A>, A>(arguments: A) {
    L::run(arguments);
}
