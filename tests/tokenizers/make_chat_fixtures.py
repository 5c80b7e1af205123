"""Writes fixtures/chat_snippets.jsonl: small templates and what Jinja2 makes of them.

Each line holds {"template", "variables", "text"}, or "error": true where Jinja2 as transformers sets
it up refuses the template. Usage: python make_chat_fixtures.py (needs transformers; from anywhere)
"""
import json
import pathlib

from transformers.utils.chat_template_utils import _compile_jinja_template

VARIABLES = {
    "s": "Hello, Wörld! 🎉 it's",
    "empty": "",
    "n": 7,
    "f": 2.5,
    "t": True,
    "none": None,
    "l": [3, 1, 2],
    "words": ["beta", "Alpha", "gamma", "alpha"],
    "d": {"b": 1, "a": [1.0, None, True], "items": "own", "é": "x"},
    "messages": [
        {"role": "system", "content": "  Be kind.\n"},
        {"role": "user", "content": "Hi <b>\"you\"</b> & 'me'"},
        {"role": "assistant", "content": None, "tool_calls": [{"name": "f", "args": {"x": 1}}]},
    ],
}

SNIPPETS = r"""
plain text
{{ s }}|{{ empty }}|{{ n }}|{{ f }}|{{ t }}|{{ none }}|{{ l }}|{{ d }}|{{ missing }}
{{ 1.0 }} {{ 1e20 }} {{ 1e16 }} {{ 1e15 }} {{ 0.0001 }} {{ 0.00001 }} {{ 123456789.125 }} {{ 1e-7 }}
{{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 1_000 }} {{ 1_0.5 }} {{ 2E3 }}
{{ 7 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 2 ** 10 }} {{ 2 ** -1 }}
{{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 1 + 2 * 3 - 4 }} {{ (1 + 2) * 3 }} {{ -2 ** 2 }} {{ +3 }} {{ - - 3 }}
{{ 'a' ~ 1 ~ none ~ t ~ l }} {{ 'a' + 'b' }} {{ 'ab' * 3 }} {{ 2 * 'x' }} {{ [1] + [2, 3] }} {{ [0] * 3 }}
{{ 1 + 'a' }}
{{ 'a' + 1 }}
{{ none + 1 }}
{{ missing + 1 }}
{{ missing.attribute }}
{{ d.missing }}|{{ d.missing is defined }}|{{ d['missing'] is undefined }}
{{ d.missing.deeper }}
{{ 1 / 0 }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ t == 1 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ none == none }}
{{ 1 < 'a' }}
{{ none < 1 }}
{{ 'ell' in s }} {{ 'x' not in s }} {{ 1 in l }} {{ 'a' in d }} {{ 'z' in d }} {{ 1 in missing }}
{{ 1 in 'abc' }}
{{ 1 in n }}
{{ t and n }} {{ t and empty }} {{ empty or 'x' }} {{ not t }} {{ not empty and 1 }} {{ none or 0 or [] }}
{{ 'yes' if t else 'no' }} {{ 'yes' if empty else 'no' }} {{ 'yes' if empty }}| {{ 1 if 0 else 2 if 0 else 3 }}
{{ ('yes' if empty) + 'x' }}
{{ "a\tb\n\\ \x41 \u00e9 \U0001F389 \101 \q \'" }} {{ 'it''s' }} {{ 'a' "b" 'c' }}
{{ l[0] }} {{ l[-1] }} {{ l[9] }}| {{ l[1:] }} {{ l[:-1] }} {{ l[::-1] }} {{ l[::2] }} {{ l[5:] }} {{ l[-2:9] }} {{ l[2:0:-1] }}
{{ s[0] }} {{ s[7:12] }} {{ s[::-1] }} {{ s[-4:] }} {{ s[100] }}| {{ s[14] }} {{ s[1:9:3] }}
{{ l[::0] }}
{{ d['a'] }} {{ d.a[0] }} {{ d.a.2 }} {{ d["é"] }} {{ messages[1].content }} {{ messages[0]['role'] }}
{{ d.items is callable }}
{{ d['items'] }} {{ d.get('b') }} {{ d.get('x') }} {{ d.get('x', 5) }} {{ d.keys() }} {{ d.values() }} {{ d.items() }}
{{ d.keys() | list }} {{ d | list }} {{ d | length }} {{ d.items() | list }} {{ d.keys()[0] }}
{{ d.update({'x': 1}) }}
{{ l.append(4) }}
{{ l.append is defined }} {{ l.index(1) }} {{ l.count(3) }} {{ (1, 2, 1).count(1) }}
{{ s.__class__ }}
{{ s.__class__ is defined }}
{{ (1,) }} {{ () }} {{ (1, 'a') }} {{ [] }} {{ {} }} {{ {'a': {'b': [1, none]}} }} {{ ['it\'s', '"', "a\nb", '\u200b', 'é'] }}
{{ {'a': 1, 'a': 2, 1: 'x', none: 3, t: 4} }}
{{ {[]: 1} }}
{{ s.upper() }} {{ s.lower() }} {{ s.title() }} {{ s.capitalize() }} {{ s.swapcase() }} {{ 'ß ŉ ΑΣ'.upper() }} {{ 'ΑΣ ΣΑ'.lower() }}
{{ '  x '.strip() }}|{{ '  x '.lstrip() }}|{{ '  x '.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'abcab'.rstrip('ab') }}|
{{ 'a b  c'.split() }} {{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a b c '.split(none, 1) }} {{ ' a b c '.rsplit(none, 1) }}
{{ 'a b'.split('') }}
{{ 'a\nb\r\nc\x0bd\n'.splitlines() }} {{ 'a\nb\n'.splitlines(true) }} {{ ''.splitlines() }} {{ ''.split(',') }} {{ ''.split() }}
{{ s.startswith('Hell') }} {{ s.startswith(('x', 'H')) }} {{ s.endswith('s') }} {{ s.startswith('W', 7) }} {{ s.endswith('H', 0, 1) }}
{{ s.startswith(1) }}
{{ s.find('W') }} {{ s.find('zz') }} {{ s.rfind('l') }} {{ s.index('ö') }} {{ s.count('l') }} {{ 'aaa'.count('aa') }} {{ 'abc'.count('') }}
{{ s.index('zz') }}
{{ s.replace('l', 'L') }} {{ s.replace('l', 'L', 1) }} {{ 'abc'.replace('', '-') }} {{ 'abc'.replace('', '-', 2) }}
{{ ', '.join(words) }} {{ ''.join([]) }}
{{ ', '.join(l) }}
{{ 'abc'.isalpha() }} {{ '12'.isdigit() }} {{ '1.2'.isdigit() }} {{ ''.isdigit() }} {{ 'a1'.isalnum() }} {{ ' \n'.isspace() }} {{ 'AB c'.isupper() }} {{ 'ab 1'.islower() }} {{ '²'.isdigit() }} {{ '½'.isnumeric() }} {{ 'Ab Cd'.istitle() }}
{{ 'ab'.center(7, '*') }} {{ 'ab'.center(6) }}| {{ 'abc'.center(6, '.') }} {{ 'ab'.ljust(4) }}| {{ 'ab'.rjust(4, '0') }} {{ '-5'.zfill(4) }} {{ 'a\tb'.expandtabs(4) }}
{{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.partition('x') }} {{ 'abc'.rpartition('x') }} {{ 'prefix'.removeprefix('pre') }} {{ 'a.py'.removesuffix('.py') }}
{{ '{} and {}'.format(1, 'b') }} {{ '{1}{0}'.format('a', 'b') }} {{ '{x:>5}|{y:.2f}|{z!r}'.format(x='a', y=1.005, z='q') }} {{ '{{}}'.format() }} {{ '{0[b]} {0[a][0]}'.format(d) }} {{ '{:05d} {:,} {:x} {:^7} {:+}'.format(42, 1234567, 255, 'mid', 3) }}
{{ '{}'.format() }}
{{ '%s is %d and %5.2f%% %r' % ('x', 3, 1.5, 'q') }} {{ '%s' % 'one' }} {{ '%05d|%-5s|%+d|%x' % (42, 'ab', 7, 255) }} {{ '%(a)s' % {'a': 1} }}
{{ '%s %s' % 'one' }}
{{ '%d' % 'x' }}
{{ s | upper }} {{ s | lower }} {{ s | title }} {{ s | capitalize }} {{ "foo-bar (baz) it's x1y" | title }} {{ 7 | upper }}
{{ '  a  ' | trim }}|{{ 'xax' | trim('x') }}|{{ missing | trim }}|{{ 5 | trim }}
{{ s | length }} {{ l | count }} {{ missing | length }} {{ d.items() | length }}
{{ none | length }}
{{ 5 | length }}
{{ missing | default('x') }} {{ empty | default('x') }} {{ empty | default('x', true) }} {{ none | d('y') }} {{ missing | default }}|
{{ missing.x | default('z') }}
{{ l | first }} {{ l | last }} {{ [] | first }}| {{ s | first }} {{ s | last }} {{ missing | first }}|{{ d | first }}
{{ l | join }} {{ l | join(', ') }} {{ messages | join('/', attribute='role') }} {{ 'abc' | join('-') }} {{ missing | join }}|{{ [1, none, 'a'] | join(' ') }}
{{ l | sort }} {{ l | sort(reverse=true) }} {{ words | sort }} {{ words | sort(case_sensitive=true) }} {{ messages | sort(attribute='role') | map(attribute='role') | list }}
{{ [1, 'a'] | sort }}
{{ l | reverse | list }} {{ s | reverse }} {{ l | sum }} {{ [1.5, 2] | sum }} {{ l | max }} {{ l | min }} {{ words | max }} {{ [] | max }}|
{{ words | unique | list }} {{ [1, 1.0, true, 'a', 'A'] | unique | list }} {{ words | unique(case_sensitive=true) | list }}
{{ d | dictsort }} {{ {'b': 1, 'A': 2} | dictsort }} {{ {'b': 1, 'A': 2} | dictsort(by='value', reverse=true) }} {{ d | items | list }}
{{ {'b': 1, 'a': [2]} | dictsort(by='value') }}
{{ messages | map(attribute='role') | list }} {{ words | map('upper') | join(',') }} {{ messages | map(attribute='x', default='-') | list }} {{ none | map('upper') | list }} {{ [[1, 2], [3, 4]] | map('first') | list }} {{ messages[2:] | map(attribute='tool_calls.0.name') | list }}
{{ messages | map(attribute='tool_calls.0.name') | list }}
{{ l | select('odd') | list }} {{ l | reject('odd') | list }} {{ [0, 1, '', 'a'] | select | list }} {{ l | select('gt', 1) | list }} {{ words | select('in', ['beta']) | list }} {{ none | select | list }}
{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list }} {{ messages | rejectattr('role', 'eq', 'user') | list | length }} {{ messages | selectattr('tool_calls') | list | length }} {{ messages | selectattr('tool_calls', 'defined') | list | length }}
{{ messages | selectattr('role', 'nosuchtest') | list }}
{{ l | nosuchfilter }}
{% if false %}{{ l | nosuchfilter }}{% endif %}ok
{{ n is nosuchtest }}
{{ messages | groupby('role') | map('first') | list }} {{ [{'k': 2, 'v': 1}, {'k': 1}, {'k': 2}] | groupby('k') | list | length }}
{{ l | batch(2) | list }} {{ l | batch(2, 0) | list }} {{ [1,2,3,4,5] | slice(3) | list }} {{ [1,2,3,4,5] | slice(3, 'x') | list }}
{{ '3' | int }} {{ '3.7' | int }} {{ 'x' | int }} {{ 'x' | int(9) }} {{ 3.9 | int }} {{ '0x1f' | int(base=16) }} {{ none | int }} {{ t | int }} {{ '2.5' | float }} {{ 'x' | float }} {{ 3 | float }} {{ ' 5 ' | int }}
{{ 2.5 | round }} {{ 3.5 | round }} {{ 2.675 | round(2) }} {{ 2.1 | round(0, 'ceil') }} {{ 2.9 | round(method='floor') }} {{ 42 | round }} {{ -3 | abs }} {{ -3.5 | abs }}
{{ 5 | string + 'x' }} {{ none | string }} {{ l | string }} {{ '<a>' | e }} {{ '<a>' | escape }} {{ '<a>' | safe }} {{ ('<a>' | safe) + '<b>' }} {{ '<a>' | e | e }} {{ ('<a>' | safe) ~ '<b>' }}
{{ 'a\nb\n\nc' | indent }}|{{ 'a\nb' | indent(2, true) }}|{{ 'a\n\nb' | indent(2, blank=true) }}|{{ 'a\nb' | indent('> ') }}|{{ 'a\nb\n' | indent }}|
{{ 'foo bar baz qux' | truncate(9) }} {{ 'foo bar baz qux' | truncate(9, true) }} {{ 'foo bar baz' | truncate(11) }} {{ 'foo bar baz qux' | truncate(11, false, '…', 0) }} {{ 'a b_c, d' | wordcount }}
{{ 'abab' | replace('a', 'x') }} {{ 'abab' | replace('a', 'x', 1) }} {{ 5 | replace(5, 6) }} {{ 'a b/ü?' | urlencode }} {{ 'ab' | center(6) }}| {{ '%s-%s' | format(1, 2) }} {{ '%(x)s' | format(x=3) }}
{{ d | tojson }} {{ s | tojson }} {{ s | tojson(ensure_ascii=true) }} {{ l | tojson(indent=2) }} {{ {} | tojson(indent=2) }} {{ none | tojson }} {{ t | tojson }} {{ 1.0 | tojson }} {{ '</script>&' | tojson }}
{{ d | tojson(sort_keys=true) }} {{ d | tojson(separators=(',', ':')) }} {{ d | tojson(indent='\t') }} {{ {1: 2, none: 3, t: 4, 1.5: 5} | tojson }} {{ (1, 2) | tojson }} {{ '\x7f\x00\x1f\u2028"\\' | tojson }} {{ {'a': [], 'b': {'c': [1]}} | tojson(indent=4) }}
{{ missing | tojson }}
{{ {'a': missing} | tojson }}
{{ d.items() | tojson }}
{{ l | attr('x') is defined }} {{ s | attr('upper') is callable }} {{ range is callable }} {{ n is callable }} {{ missing is callable }}
{{ n is number }} {{ t is number }} {{ t is integer }} {{ n is integer }} {{ f is float }} {{ t is boolean }} {{ s is string }} {{ d is mapping }} {{ l is sequence }} {{ s is sequence }} {{ d is sequence }} {{ n is sequence }} {{ l is iterable }} {{ n is iterable }} {{ d.items() is sequence }} {{ d.items() is iterable }} {{ (l | map('string')) is sequence }}
{{ n is odd }} {{ n is even }} {{ n is divisibleby 7 }} {{ n is divisibleby(3) }} {{ none is none }} {{ t is true }} {{ t is false }} {{ 1 is true }} {{ 'ab' is lower }} {{ 'AB' is upper }} {{ n is eq 7 }} {{ n is not ne 7 }} {{ n is gt 3 }} {{ n is in [7] }} {{ 'x' is in 'xyz' }} {{ none is sameas none }} {{ 'upper' is filter }} {{ 'odd' is test }} {{ ('<' | safe) is escaped }} {{ l is sameas l }}
{{ n is defined and n is not none and n > 5 }} {{ n is equalto 7 or t }} {{ not n is defined }}
{{ n is defined is true }}
{% if n == 7 %}seven{% elif n == 8 %}eight{% else %}other{% endif %} {% if empty %}a{% elif t %}b{% endif %} {% if missing %}x{% endif %}
{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ x }} {% endfor %}
{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {{ loop.cycle('a', 'b') }} {{ loop.changed(x // 2) }};{% endfor %}
{% for x in [] %}{{ x }}{% else %}none{% endfor %} {% for x in missing %}{% else %}none{% endfor %}
{% for x in none %}{% endfor %}
{% for x in n %}{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %} {% for k in d %}{{ k }}{% endfor %} {% for a, b in [[1, 2], (3, 4)] %}{{ a + b }}{% endfor %}
{% for a, b in [[1, 2, 3]] %}{% endfor %}
{% for x in l if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% endfor %} {% for m in messages if m.role != 'system' %}{{ m.role }}{% if not loop.last %},{% endif %}{% endfor %}
{% set ns = namespace(found=false) %}{% for x in l if not ns.found %}{{ x }}{% if x == 1 %}{% set ns.found = true %}{% endif %}{% endfor %}
{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %} {% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% else %}else{% endfor %}
{% for x in 'aé🎉' %}[{{ x }}]{% endfor %} {% for x in range(3) %}{{ x }}{% endfor %} {% for x in range(5, 0, -2) %}{{ x }}{% endfor %} {{ range(3) }} {{ range(1, 4) | list }} {{ range(4)[2] }} {{ range(3) | length }}
{{ range(1000000) }}
{% for i in [1, [2, [3]]] recursive %}{% if i is number %}{{ i }}@{{ loop.depth }}{% else %}({{ loop(i) }}){% endif %}{% endfor %}
{% for x in l %}{{ loop }}{% endfor %}
{{ loop is defined }} {% for x in [1] %}{% for y in [1, 2] %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}
{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }},{% endfor %}{{ x }} {% if t %}{% set x = 9 %}{% endif %}{{ x }}
{% set ns = namespace(x=1, y='a') %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.y }}{{ ns.z }}|{{ ns.z is defined }} {{ namespace({'q': 1}).q }}
{% set n.x = 1 %}
{% set d.x = 1 %}
{% set a, b = 1, 2 %}{{ a }}{{ b }} {% set c = 1, 2 %}{{ c }} {% set (e, g) = l[:2] %}{{ e }}{{ g }} {% set x %}block {{ n }}{% endset %}[{{ x }}] {% set x | upper | trim %} up {% endset %}[{{ x }}]
{% set x = 5 %}{% set y = x %}{% set x = 6 %}{{ x }}{{ y }} {% set t = false %}{{ t }}
{% with a = 1, b = n %}{{ a }}{{ b }}{% set a = 2 %}{{ a }}{% endwith %}{{ a is defined }} {% set q = 1 %}{% with q = 2, r = q %}{{ q }}{{ r }}{% endwith %}{{ q }}
{% macro m(a, b=2, c='x') %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, c='y') }}{{ m() }}{{ m(b=m(0), a=5) }} {{ m.name }} {{ m.arguments }}
{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{% endmacro %}{{ m(x=2) }}
{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, x=4) }}{{ m(1) }}
{% macro m(a, b=a ~ '!') %}{{ b }}{% endmacro %}{{ m('x') }} {% macro fact(k) %}{% if k > 1 %}{{ k * (fact(k - 1) | int) }}{% else %}1{% endif %}{% endmacro %}{{ fact(10) }}
{% set g = 1 %}{% macro m() %}{{ g }}{{ n }}{% set g = 5 %}{{ g }}{% endmacro %}{{ m() }}{% set g = 2 %}{{ m() }}{{ g }} {% for h in l %}{% macro k() %}{{ h }}{% endmacro %}{{ k() }}{% endfor %}
{% macro early() %}{{ later() }}{% endmacro %}{% macro later() %}L{% endmacro %}{{ early() }} {% for x in l %}{{ inner is defined }}{% macro inner() %}{% endmacro %}{% endfor %}{{ inner is defined }}
{% macro box(title) %}<{{ title }}>{{ caller() }}</>{% endmacro %}{% call box('T') %}body {{ n }}{% endcall %} {% macro each() %}{% for i in l %}{{ caller(i) }}{% endfor %}{% endmacro %}{% call(v) each() %}({{ v }}){% endcall %}
{% macro m() %}x{% endmacro %}{% call m() %}{% endcall %}
{{ m() }}{% macro m() %}{% endmacro %}
{{ m(*[1, 2], **{'c': 3}) }}
{% macro m(a, b, c) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(*[1, 2], **{'c': 3}) }} {{ dict(a=1, b=2) }} {{ dict([('x', 1)], y=2) }} {{ dict(d, b=9).b }}
{% filter upper %}abc {{ s }}{% endfilter %} {% filter replace('a', 'b') | trim %} aaa {% endfilter %}|
{% raw %}{{ not }} {% parsed %}{# x #}{% endraw %} {%- raw -%}  a  {%- endraw -%}  b
{# comment #}a{#- x -#} b {# multi
line #}c
{% generation %}{{ n }}{% set inside = 1 %}{% endgeneration %}{{ inside is defined }}
{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }} {% set j = joiner('; ') %}{{ j() }}{{ j() }}{{ j() }}
{{ raise_exception('no') }}
{% if true %}
{{ unclosed
{% unknown %}
{{ }}
{{ 1 2 }}
{{ 'unclosed }}
{{ [1, 2 }}
{% for x in l %}{% endif %}
{% endfor %}
{% break %}
{% set 1 = 2 %}
{% include 'x' %}
{{ a b }}
{{ $ }}
{{ n is }}
{{ f(a=1, 2) }}
{{ }} }}
{% macro m(a=1, b) %}{% endmacro %}
a{% if t %}
  b
{% endif %}
c
  {% if t %}
x {% if t %} y {% endif %} z
  {%- if t -%}
   w
  {%- endif +%}
v
{{ n }}
  {{- n -}}
 q
    {%+ if t %}p{% endif %}
{% endif %}
line{# c #}
  {# c #}
end
{{ [1, 2, 3,] }} {{ {'a': 1,} }} {{ (1, 2,) }} {{ m is defined }} {{ true }} {{ True }} {{ False }} {{ None }} {{ none }}
{{ messages[0].content | trim ~ '!' }} {{ - n | abs }} {{ n | string | length * 2 }} {{ not n in l }} {{ n in l == false }} {{ l | length > 2 and n }} {{ 2 * n | string }}
{{ {'a': 1}.a }} {{ [1, 2][0] }} {{ 'abc'[1] }} {{ 'x'.upper() }} {{ (l | sort)[0] }} {{ l | sort | first }} {{ "a" if not none else "b" }}
{{ d.a is sequence and d.b is number }} {{ 'content' in messages[1] }} {{ messages[2].content is none }} {{ messages[2]['tool_calls'][0].args | tojson }} {{ messages | length - 1 }} {{ messages[1:] | length }} {{ messages[-1].role }}
{{ '' if n else 'x' }}|{{ l == [3, 1, 2] }} {{ l != [3] }} {{ d == d }} {{ {'a': 1} == {'a': 1.0} }} {{ (1, 2) == [1, 2] }} {{ 'a' == none }} {{ missing == missing2 }} {{ missing == none }} {{ 1 != '1' }}
{{ 9223372036854775807 }} {{ 9223372036854775807 - 1 }} {{ 3 > 2 >= 2 }} {{ 1e400 }} {{ -1e400 }} {{ 0.1 + 0.2 }} {{ 1 / 3 }} {{ 100 * 1.1 }} {{ 5 // 0.3 }} {{ -0.0 }} {{ 3.0 | int }} {{ 1e2 }}
{{ l | map('nosuch') | list }}
{{ [1, [2, 3]] | map('sum') | list }}
{{ l | sum(start=10) }} {{ [{'v': 1}, {'v': 2}] | sum(attribute='v') }} {{ [{'v': 1}, {'v': 5}] | max(attribute='v') }}
""".strip("\n")


def snippets():
    """Yields the lines above. Those about white space are one template, with each end of line."""
    lines = SNIPPETS.split("\n")
    white_space = lines.index("a{% if t %}")
    end = lines.index("end")
    comment = lines.index("{# comment #}a{#- x -#} b {# multi")
    for i, line in enumerate(lines):
        if i == comment:
            yield line + "\n" + lines[i + 1]
        elif i == white_space:
            yield "\n".join(lines[white_space : end + 1])
            yield "\r\n".join(lines[white_space : end + 1]) + "\r\n"
            yield "\n".join(lines[white_space : end + 1]) + "\n\n"
        elif not white_space < i <= end and i != comment + 1:
            yield line


def answer(template):
    try:
        return {"text": _compile_jinja_template(template).render(**VARIABLES)}
    except Exception:  # whatever a template raises
        return {"error": True}


def main():
    path = pathlib.Path(__file__).resolve().parent / "fixtures" / "chat_snippets.jsonl"
    with open(path, "w") as file:
        file.write(json.dumps({"variables": VARIABLES}) + "\n")
        for template in snippets():
            file.write(json.dumps({"template": template, **answer(template)}) + "\n")


if __name__ == "__main__":
    main()
