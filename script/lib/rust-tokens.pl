# Tells code from strings and comments in Rust files, which a plain grep cannot.
#
# perl rust-tokens.pl code FILE...      FILE:LINE:code, comments and string contents blanked
# perl rust-tokens.pl strings FILE...   FILE:LINE:content of each string on one line, except on
#                                       lines that say `// sql as data`
use strict;
use warnings;

my $mode   = shift @ARGV;
my $tokens = qr{
    (?<comment> //[^\n]* | (?<block> /\* (?: [^*/]++ | \*(?!/) | /(?!\*) | (?&block) )*+ \*/ ) )
  | (?<raw> \b(?:b|c)?r(?<hashes>\#*)" .*? "\k<hashes> )
  | (?<string> "(?: \\. | [^"\\] )*" )
  | (?<char> '(?: \\[^\n]+? | [^'\\\n] )' )
}xs;

for my $file (@ARGV) {
    open my $in, '<:encoding(UTF-8)', $file or die "$file: $!\n";
    my $text  = do { local $/; <$in> };
    my @lines = split /\n/, $text, -1;
    binmode STDOUT, ':encoding(UTF-8)';

    if ($mode eq 'code') {
        # Every token keeps its line breaks, so that line numbers stay true.
        $text =~ s{$tokens}{
            my $token = $&;
            my $breaks = $token =~ tr/\n//;
            (defined $+{comment} ? '' : '""') . "\n" x $breaks
        }ge;
        my $number = 0;
        print "$file:", ++$number, ":$_\n" for split /\n/, $text, -1;
        next;
    }

    my ($number, $seen) = (1, 0);
    while ($text =~ /$tokens/g) {
        my ($start, $token) = ($-[0], $&);
        next if defined $+{comment} || defined $+{char};
        $number += substr($text, $seen, $start - $seen) =~ tr/\n//;
        $seen = $start;
        next if $lines[ $number - 1 ] =~ m{// sql as data};
        $token =~ s/\s+/ /g;
        print "$file:$number:$token\n";
    }
}
